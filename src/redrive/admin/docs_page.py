"""The page at /docs: every operation with its role, parameters and answers, from the OpenAPI document. No script."""

import base64
import hashlib
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c1c1c }
h1 { margin-bottom: 0 }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; text-transform: capitalize }
details { margin: .4rem 0; padding: .3rem .6rem; background: #f5f5f2; border-radius: 4px }
summary { cursor: pointer }
code { font: 13px/1.5 ui-monospace, monospace }
.method { display: inline-block; width: 4.5rem; font-weight: 700 }
.role { float: right; color: #666 }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #ddd }
  details { background: #222 }
  a { color: #8ab4f8 }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Only this page's own style."""


def docs_page(schema: dict[str, Any]) -> str:
    """The page, as HTML."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(rows)}" for tag, rows in by_tag.items())
    info = schema["info"]
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in info["description"].strip().split("\n\n"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} API</h1><p>version {escape(info['version'])} · "
        f'<a href="/openapi.json">openapi.json</a></p>{paragraphs}{sections}</body></html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    role = operation.get("x-redrive-role", "none")
    grant = " with payloads" if operation.get("x-redrive-payloads") else ""
    needed = "open" if role == "none" else f"{role}{grant}"
    parameters = "".join(_parameter(one) for one in operation.get("parameters", []))
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(one.get('description', ''))}</td></tr>"
        for status, one in operation.get("responses", {}).items()
    )
    body = _body_name(operation)
    return (
        f'<details><summary><span class="method">{escape(method.upper())}</span><code>{escape(path)}</code>'
        f' <span class="role">{escape(needed)}</span></summary>'
        f"<p>{escape(operation.get('description') or operation.get('summary') or '')}</p>"
        f"{f'<table>{parameters}</table>' if parameters else ''}"
        f"{f'<p>Body: <code>{escape(body)}</code></p>' if body else ''}<table>{answers}</table></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    needed = "required" if parameter.get("required") else ""
    text = parameter.get("description") or parameter.get("schema", {}).get("description") or ""
    place = escape(parameter["in"])
    return f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{place} {needed}</td><td>{escape(text)}</td></tr>"


def _body_name(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        reference = media.get("schema", {}).get("$ref", "")
        return reference.rsplit("/", 1)[-1] or "JSON"
    return ""
