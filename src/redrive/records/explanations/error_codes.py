"""Numbers in an error's text that say what went wrong: HTTP statuses, codes of databases, errno, exit codes.

They distinguish one kind of error from another, so a group keeps them; other numbers (ids, amounts, durations,
addresses, ports) differ from one message to the next. A number is a code by what stands beside it: `status code 404`,
`404 Not Found`, `ORA-00942`, `[Errno 111]`. One that could be anything (`order 404`, `code 404` of a voucher) is none:
a group for every message is worse than two kinds in one.

No expression here may ask for a certain digit: `error_templates` tries a text with all digits alike first.
"""

_REASONS = (
    "Continue|Switching Protocols|OK|Created|Accepted|No Content|Multiple Choices|Moved Permanently|Found|See Other"
    "|Not Modified|Temporary Redirect|Permanent Redirect|Bad Request|Unauthori[sz]ed|Payment Required|Forbidden"
    "|Not Found|Method Not Allowed|Not Acceptable|Proxy Authentication Required|Request Time-?out|Conflict|Gone"
    "|Length Required|Precondition Failed|(?:Content|Payload|Request Entity) Too Large|(?:Request-)?URI Too Long"
    "|Unsupported Media Type|Range Not Satisfiable|Expectation Failed|Misdirected Request"
    "|Unprocessable (?:Entity|Content)|Locked|Failed Dependency|Too Early|Upgrade Required|Precondition Required"
    "|Too Many Requests|Request Header Fields Too Large|Unavailable For Legal Reasons|Internal Server Error"
    "|Not Implemented|Bad Gateway|Service (?:Temporarily )?Unavailable|Gateway Time-?out|HTTP Version Not Supported"
    "|Insufficient Storage|Loop Detected|Network Authentication Required|Client Error|Server Error|Redirect"
)
_BETWEEN = r"(?:\s*[:=#(\[<]\s*|\s+(?:is|was|of)\s+|\s+)"

CODE = (
    # HTTP: after a word that announces one, or before the words that say it.
    rf"(?i:\bHTTP(?:/\d(?:\.\d)?)?(?:[ _-](?:error|status|response)(?:[ _-]?code)?)?{_BETWEEN}\d{{3}}(?!\w|[.,]\d))"
    rf"|(?i:\b(?:http|response[ _-]?)?status(?:[ _-]?code)?(?:\s+does not indicate success)?{_BETWEEN}\d{{3}}"
    r"(?!\w|[.,]\d))"
    r"|(?i:\bnon-\d{3}\b)"
    rf"|(?<![\w.,:/-])\d{{3}}(?= \(?(?:{_REASONS})\b)|(?:^|(?<=: ))\d{{3}}(?= : )"
    rf"|(?<!\w)'\d{{3}} (?:{_REASONS})'(?!\w)"
    # AMQP and SMTP: `reply-code=404`, `(404) NOT_FOUND`, `550 5.1.1`.
    r"|(?<=\()\d{3}(?=\) [A-Z][A-Z_-]{3})|(?i:\breply-?(?:code)?[=: ]{1,2}\d{3}(?!\w))"
    r"|\b\d{3}[ -]\d\.\d{1,3}\.\d{1,3}(?![\w.])"
    # Databases: ORA-00942, SQLSTATE[23000], (1062, "Duplicate …"), E11000, ERROR 1062 (23000), Msg 2627.
    r"|\b(?:ORA|PLS|TNS|SP2|IMP|RMAN|DPI|DPY|CRS|NQS)-\d{3,5}\b|\bSQL\d{4,5}[NCW]?\b|\bE\d{5}\b"
    r"|(?i:\bSQL(?:STATE|CODE)\W{1,3}-?\w{3,6}\b)|\bERROR \d{4,5} \(\w{5}\)|\bMsg \d{2,5}\b"
    r"|(?<![\w)])\(\d{3,5}(?=, b?[\"'])"
    # Operating systems: [Errno 111], os error 2, exit code 137, signal 9, HRESULT 0x80004005.
    r"|(?i:\b(?:errno|os error|winerror|win32 error|hresult)\W{1,3}-?(?:0x[0-9a-f]{1,8}|\d{1,10})\b)"
    r"|(?i:\bexit(?:ed|s)?(?:\s+with)?[ _-]?(?:code|status)\W{1,3}-?\d{1,10}\b)|(?i:\bsignal\W{1,2}\d{1,2}\b)"
    r"|\b0x8[0-9a-fA-F]{7}\b"
    # Anybody's: error code 5, error number: 1205, code=241, TS2304: and the like.
    r"|(?i:\b(?:err(?:or)?|status|return|result|response|vendor|native|failure|fault|reason)"
    r"[ _-]?(?:code|number|no\.?)(?:\s*[:=#(\[]\s*|\s+)-?\d{1,6}(?!\w|[.,]\d))|(?i:\berror \d{3}(?=:))"
    r"|(?<!\w\s)(?i:\bcode(?:\s*[:=]\s*)-?\d{1,5}(?!\w|[.,]\d))"
)
"""What a code looks like, as an expression without groups of its own."""
