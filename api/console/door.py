"""Before the pages: signing in and out, the way home, and worker logs as byte streams. Needs no NiceGUI."""

import html
from functools import partial
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.auth import still_good
from api.body import read_bytes
from api.console import session
from api.errors import answer
from api.routes.logs import LogResponse
from api.services.logs import LogQuery, open_log
from api.state import AppState
from astraeus.model.errors import AstraeusError, Invalid, NotAllowed

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
FORM_BYTES = 16 * 1024
NO_STORE = {"Cache-Control": "no-store"}
NUMBER_DIGITS = 9

SIGN_IN_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>Sign in – Astraeus</title><style>
:root{{--bg:#f6f7f9;--card:#fff;--text:#17202b;--soft:#576374;--line:#cfd6df;--main:#1d5fd1;--bad:#b3261e}}
@media(prefers-color-scheme:dark){{:root{{--bg:#10151c;--card:#18202a;--text:#e8edf3;--soft:#a3afbd;--line:#3a4756;
--main:#7fb0ff;--bad:#ff9d94}}}}
body{{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--bg);color:var(--text);
font:16px/1.5 system-ui,sans-serif}}main{{width:min(26rem,calc(100vw - 2rem));box-sizing:border-box;padding:2rem;
background:var(--card);border:1px solid var(--line);border-radius:12px}}h1{{margin:0 0 .25rem;font-size:1.5rem}}
p{{margin:.25rem 0 1.25rem;color:var(--soft)}}label{{display:block;font-weight:600;margin-bottom:.35rem}}
input,button{{font:inherit;width:100%;box-sizing:border-box;padding:.6rem .75rem;border-radius:8px}}
input{{border:1px solid var(--line);background:var(--bg);color:inherit}}button{{margin-top:1rem;border:0;cursor:pointer;
background:var(--main);color:var(--card);font-weight:600}}:focus-visible{{outline:3px solid var(--main);
outline-offset:2px}}.bad{{color:var(--bad);margin:.5rem 0 0}}</style></head><body><main><h1>Astraeus</h1>
<p>Sign in with a token of your workspace. It is kept in a cookie that only this server can read.</p>
<form method="post" action="/sign-in"><input type="hidden" name="next" value="{next}">
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" required
autofocus spellcheck="false" aria-describedby="fault">{fault}<button>Sign in</button></form></main></body></html>"""


async def front(state: AppState, request: Request) -> Response:
    """`/`: the caller's runs, or the sign-in page."""
    try:
        home = await session.home(state, await session.caller_of(state, session.token_of(state, request)))
    except AstraeusError:
        home = None
    return RedirectResponse(home or SIGN_IN, 303, NO_STORE)


def to_sign_in(request: Request) -> Response:
    """The sign-in page, and afterwards back to where the request was going."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{SIGN_IN}?next={quote(target)}", 303, NO_STORE)


async def sign_in(state: AppState, request: Request) -> Response:
    """Show the form, or take a token: it goes into a sealed cookie and nowhere else."""
    if request.method != "POST":
        return _form(request.query_params.get("next", ""))
    wanted = ""
    try:
        form = parse_qs((await read_bytes(request, FORM_BYTES)).decode("utf-8", "replace"))
        token, wanted = form.get("token", [""])[0].strip(), form.get("next", [""])[0]
        target = _inside(wanted) or await session.home(state, await session.caller_of(state, token))
        await session.caller_of(state, token)
        if target is None:
            raise NotAllowed("There is no workspace yet; make one first.")
    except AstraeusError as error:
        return _form(wanted, error)
    response = RedirectResponse(target, 303, NO_STORE)
    response.set_cookie(
        session.COOKIE,
        session.seal(state.cipher, token),
        max_age=session.SESSION_SECONDS,
        httponly=True,
        samesite="lax",
        secure=state.public_url.startswith("https:"),
    )
    return response


def sign_out() -> Response:
    """Forget the session."""
    response = RedirectResponse(SIGN_IN, 303, NO_STORE)
    response.delete_cookie(session.COOKIE, httponly=True, samesite="lax")
    return response


def _form(wanted: str, error: AstraeusError | None = None) -> Response:
    fault = f'<p class="bad" id="fault" role="alert">{html.escape(error.message)}</p>' if error else ""
    page = SIGN_IN_PAGE.format(next=html.escape(_inside(wanted) or "", quote=True), fault=fault)
    return HTMLResponse(page, error.http_status if error else 200, NO_STORE)


def _inside(target: str) -> str | None:
    """A target that leads into the console; nothing may send a user elsewhere after signing in."""
    safe = target.startswith("/o/") and "\\" not in target and all(letter > " " for letter in target)
    return target if safe else None


async def log(state: AppState, request: Request, org: str, name: str, run: str, worker: str) -> Response:
    """A worker's log as it was written."""
    query = request.query_params
    try:
        token = session.token_of(state, request)
        scope = await session.admit(state, token, org, name)
        asked = LogQuery(_number(query.get("attempt")), _number(query.get("tail")), query.get("follow") == "1")
        return LogResponse(await open_log(scope, run, worker, asked), partial(still_good, scope, token or ""))
    except AstraeusError as error:
        return answer(error)


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS):
        raise Invalid(f"{text[:20]!r} is not a whole number.")
    return int(text)
