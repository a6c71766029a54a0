"""The answers of admission webhooks: read, checked, and applied. The words are those of the real server."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from . import body as reading
from . import patches, types
from .kinds import Served
from .status import Problem
from .strategies import not_base64

GROUP = "admission.k8s.io"
_RESPONSE: types.Fields = {"response": "v1.AdmissionResponse"}
# The words of Kubernetes' client for responses without a Status.
_REFUSALS: Mapping[int, str] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, but may still be processing the"
        " request"
    ),
}

_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The answer to a call; `failure` says why there is none."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    failure: str = ""


class Failure(Exception):
    """A webhook was not called, or its answer cannot be used."""


def read(answer: WebhookAnswer, version: str, uid: str, *, mutates: bool) -> dict[str, Any]:
    """Read the answer of a webhook; raise Failure if it is no valid AdmissionReview."""
    if not 200 <= answer.code < 300:
        raise Failure(f"failed to call webhook: {_refusal(answer)}")
    if not answer.body:
        raise Failure(
            f"failed to call webhook: 0-length response with status code: {answer.code} and content type:"
            f" {answer.content_type}"
        )
    try:
        review = reading.decode(answer.body)
    except reading.UnreadableBody as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise Failure(f"failed to call webhook: {why}") from None
    if not isinstance(review, dict) or (why := types.misfit(review, types.TYPE, "struct { }")):
        raise Failure("failed to call webhook: couldn't get version/kind; json parse error: no object")
    api_version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    other = {"v1": "v1beta1", "v1beta1": "v1"}[version]
    if (api_version, kind) == (f"{GROUP}/{other}", "AdmissionReview"):
        why = f"converting ({other}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion"
        raise Failure(f"failed to call webhook: {why}")
    if (api_version or kind) and (api_version, kind) != (f"{GROUP}/{version}", "AdmissionReview"):
        why = f'no kind "{kind}" is registered for version "{api_version}"'
        why += ' in scheme "pkg/runtime/scheme.go:111"'
        raise Failure(f"failed to call webhook: {why}")
    if why := types.misfit(review, _RESPONSE, "v1.AdmissionReview"):
        raise Failure(f"failed to call webhook: {why}")
    response: dict[str, Any] | None = review.get("response")
    found = _invalid(response, version, uid, is_typed=bool(api_version or kind), mutates=mutates)
    if found or response is None:
        raise Failure(f"received invalid webhook response: {found}")
    if (at := not_base64(response.get("patch") or "")) is not None:
        raise Failure(f"failed to call webhook: illegal base64 data at input byte {at}")
    return response


def _invalid(
    response: Mapping[str, Any] | None, version: str, uid: str, *, is_typed: bool, mutates: bool
) -> str:
    if response is None:
        return "webhook response was absent"
    patch, patch_type = response.get("patch"), response.get("patchType")
    if version == "v1":
        if response.get("uid", "") != uid:
            return f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
        if not is_typed:
            return f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got /, Kind="
        if not mutates:
            found = [key for key in ("patch", "patchType") if response.get(key)]
            return f"validating webhook may not return response.{found[0]}" if found else ""
        if patch and patch_type is None:
            return "webhook returned response.patch but not response.patchType"
        if not patch and patch_type is not None:
            return "webhook returned response.patchType but not response.patch"
    return ""


def _refusal(answer: WebhookAnswer) -> str:
    try:
        status = reading.decode(answer.body)
    except reading.UnreadableBody:
        status = None
    if isinstance(status, dict) and (status.get("kind"), status.get("status")) == ("Status", "Failure"):
        return str(status.get("message") or "unknown")
    if answer.code in _REFUSALS:
        return _REFUSALS[answer.code]
    is_text = answer.content_type.startswith("text/")
    text = _encode(answer.body.decode(errors="replace").strip() if is_text else "unknown").decode()
    return f"an error on the server ({text}) has prevented the request from succeeding"


def denial(name: str, status: Mapping[str, Any] | None) -> Problem:
    status = status or {}
    denied = f'admission webhook "{name}" denied the request'
    message, reason = status.get("message") or "", status.get("reason") or ""
    text = f"{denied}: {message or reason}" if message or reason else f"{denied} without explanation"
    return Problem(max(400, status.get("code") or 0), reason, text, details=status.get("details"))


def internal(why: str) -> Problem:
    return Problem(
        500,
        "InternalError",
        f"Internal error occurred: {why}",
        details={"causes": [{"message": why}]},
    )


# ---- Patches.


def patched(hook: str, patch: bytes, obj: Mapping[str, Any] | None, served: Served) -> dict[str, Any] | None:
    """Return the object with the patch of a webhook; None if the patch changes nothing."""
    try:
        steps = reading.decode(patch)
    except reading.UnreadableBody as error:
        raise Failure(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(steps, list) or any(not isinstance(step, dict) for step in steps):
        wrong = next((step for step in steps if not isinstance(step, dict)), None) if steps else None
        kind = types.json_type(steps if not isinstance(steps, list) else wrong)
        wanted = "Patch" if not isinstance(steps, list) else "Operation"
        raise Failure(
            f"received undecodable patch in webhook response: json: cannot unmarshal {kind} into Go value of"
            f" type jsonpatch.{wanted}"
        )
    if not steps:
        return None
    if obj is None:
        raise internal(
            f'admission webhook "{hook}" attempted to modify the object, which is not supported for this'
            " operation"
        )
    changed: dict[str, Any] = copy.deepcopy(dict(obj))
    for step in steps:
        try:
            changed = patches.read(_encode([step]), patches.JSON, served)(changed)
        except Problem:
            raise internal(_step_error(step, changed)) from None
    for key in ("kind", "apiVersion"):
        if changed.get(key) != obj[key]:
            versions = [
                str(body.get("apiVersion")).rpartition("/")[2] + f".{body.get('kind')}"
                for body in (changed, obj)
            ]
            raise Problem(500, "", f"converting ({versions[0]}) to ({versions[1]}): unknown conversion")
    return None if _canonical(changed) == _canonical(obj) else changed


def _step_error(step: Mapping[str, Any], obj: Any) -> str:
    """Return the error of the server's library for a step that does not apply."""
    op, path = step.get("op"), step.get("path")
    if op not in ("add", "replace", "remove", "move", "copy", "test"):
        return f"Unexpected kind: {op}"
    if not isinstance(path, str):
        return f"{op} operation failed to decode path: missing value"
    place = str(step.get("from")) if op in ("move", "copy") else path
    *above, key = place.split("/")[1:] or [""]
    home = obj
    for name in above:
        if isinstance(home, list):
            home = home[int(name)] if name.isdecimal() and int(name) < len(home) else None
        else:
            home = home.get(name) if isinstance(home, dict) else None
    is_missing = not isinstance(home, dict | list) or not place.startswith("/")
    missing = {
        "add": f'add operation does not apply: doc is missing path: "{place}": missing value',
        "remove": f'remove operation does not apply: doc is missing path: "{place}": missing value',
        "replace": f"replace operation does not apply: doc is missing path: {place}: missing value",
        "move": f"move operation does not apply: doc is missing from path: {place}: missing value",
        "copy": f"copy operation does not apply: doc is missing from path: {place}: missing value",
        "test": f"test operation does not apply: is missing path: {place}: missing value",
    }
    if is_missing or op == "copy":
        return missing[op]
    if op == "test":
        return f"testing value {place} failed: test failed"
    if op == "replace":
        return f"replace operation does not apply: doc is missing key: {place}: missing value"
    where = key if op == "move" else place
    if isinstance(home, list):
        why = f"Unable to access invalid index: {key}: invalid index referenced"
    else:
        why = f"Unable to remove nonexistent key: {key}: missing value"
    return f"error in {op} for path: '{where}': {why}"
