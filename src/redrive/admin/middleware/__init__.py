"""The ASGI middleware every request passes. `app` lists it in its order; one module each."""
