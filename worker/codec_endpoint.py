"""Lets one Temporal UI show sealed payloads: decodes them for pages of that origin and for nobody else."""

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payloads

from worker.codec import SealingCodec

PATH = "/temporal/codec"
BODY_MOST = 8 * 1024 * 1024


def routes(codec: SealingCodec, origin: str) -> list[Route]:
    """The decode route of Temporal's remote codec protocol, for a UI served from `origin`."""
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "POST, OPTIONS",
        "access-control-allow-headers": "content-type, x-namespace",
        "vary": "origin",
    }

    async def decode(request: Request) -> Response:
        if request.headers.get("origin") != origin:
            return JSONResponse({"detail": "payloads are decoded for the configured Temporal UI only"}, 403)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        if int(request.headers.get("content-length", BODY_MOST + 1)) > BODY_MOST:
            return JSONResponse({"detail": "too large"}, 413, headers)
        try:
            sealed = json_format.Parse(await request.body(), Payloads())
            opened = Payloads(payloads=await codec.decode(sealed.payloads))
        except (json_format.ParseError, ValueError) as error:
            return JSONResponse({"detail": f"not payloads of this installation: {error}"}, 400, headers)
        return Response(json_format.MessageToJson(opened), media_type="application/json", headers=headers)

    return [Route(PATH + "/decode", decode, methods=["POST", "OPTIONS"])]
