"""Two hundred texts that a page which renders text as markup would run: names, logs, dimensions, artifact names."""

from itertools import product

#: What runs a script where it is rendered. Each would open a dialog, which a test sees.
RUNS = (
    "<script>alert({n})</script>",
    "<img src=x onerror=alert({n})>",
    "<svg onload=alert({n})>",
    "<svg><script>alert({n})</script></svg>",
    "<iframe srcdoc='<script>parent.alert({n})</script>'></iframe>",
    "<body onload=alert({n})>",
    "<details open ontoggle=alert({n})>x</details>",
    "<video><source onerror=alert({n})></video>",
    "<input autofocus onfocus=alert({n})>",
    "<a href=javascript:alert({n})>x</a>",
    "<math><mtext><img src=x onerror=alert({n})></mtext></math>",
    "<style>*{{background:url(javascript:alert({n}))}}</style>",
    "<object data=javascript:alert({n})></object>",
    "<embed src=javascript:alert({n})>",
    "<form><button formaction=javascript:alert({n})>x</button></form>",
    "<link rel=stylesheet href=data:text/css,*{{}}>",
    "<base href=//example.invalid/>",
    "<meta http-equiv=refresh content=0;url=javascript:alert({n})>",
    "<marquee onstart=alert({n})>x</marquee>",
    "<template><script>alert({n})</script></template>",
)
#: What ends the place where a text stands: attributes, comments, scripts, styles, templates.
LEAVES = (
    "{}",
    '">{}',
    "'>{}",
    "--></script>{}",
    "</title></style>{}",
    "${{{}}}",
    "{{{{constructor.constructor('alert(1)')()}}}}{}",
)
#: What is odd without markup.
ODD = (
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "__proto__",
    "constructor",
    "toString",
    "../../../etc/passwd",
    "a\u202etxt.exe",
    "zero\u200bwidth",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\\u003cscript\\u003ealert(1)",
    "{{7*7}}",
    "[object Object]",
    "NaN",
    "null",
    "x" * 200,
    "日本語 🦄 العربية",
    "a\tb",
    "#sign-in=aaaaaaaaaaaaaaaaaaaaaaaa",
    "?token=x&attempt=1",
)
CORPUS = (
    tuple(leave.format(run.format(n=number)) for number, (leave, run) in enumerate(product(LEAVES, RUNS)))
    + ODD
    + tuple(
        f"{odd} {RUNS[(number + number // len(ODD)) % len(RUNS)].format(n=number)}"
        for number, odd in enumerate(ODD * 2)
    )
)
assert len(set(CORPUS)) == 200
