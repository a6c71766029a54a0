"""Reviews of users and permissions, and token requests: objects that are POSTed for their response only.
Nothing is stored.

Selectors in reviews are accepted and, as by RBAC, ignored.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from .history import Stored
from .rbac import Rbac, Url
from .request import Answer, Call, User
from .status import bad_request, conflict, invalid, no_such_path, not_found
from .users import ISSUER, Bound, Users

AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"
HOUR = 3600


class Reviews:
    def __init__(self, users: Users, rbac: Rbac, *, now: Callable[[], dt.datetime]) -> None:
        self._users = users
        self._rbac = rbac
        self._now = now

    def answer(self, user: User, call: Call, body: Mapping[str, Any]) -> Answer:
        """Answer a review; the permission to create it was checked before."""
        kind = KINDS[call.group, call.subresource or call.resource]
        # A token is requested at its account; of the others, only the local one is in a namespace.
        if kind == "TokenRequest":
            is_here = call.resource == "serviceaccounts" and bool(call.namespace)
        else:
            is_here = not (call.name or call.subresource) and bool(call.namespace) == kind.startswith("Local")
        if not is_here or call.version != "v1":
            raise no_such_path()
        given = body.get("kind") or kind
        if given != kind:
            raise bad_request(
                f'{given} in version "v1" cannot be handled as a {kind}: no kind "{given}" is registered for'
                f' version "{call.group or AUTHENTICATION}/v1" in scheme "pkg/runtime/scheme.go:111"'
            )
        if (_mapping(body, "metadata").get("namespace") or call.namespace) != call.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        spec = _mapping(body, "spec")
        match kind:
            case "SelfSubjectAccessReview":
                _require_empty(body, "")
                return _answer(call, {}, spec, self._access(user, call, spec))
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                return self._subject_access(call, body, spec)
            case "SelfSubjectRulesReview":
                return _answer(call, {}, {}, self._rules(user, spec))
            case "SelfSubjectReview":
                return _answer(
                    call, {"creationTimestamp": _time(self._now())}, None, {"userInfo": _user(user)}
                )
            case "TokenReview":
                return _answer(call, {}, spec, self._token_review(spec))
            case _:
                return self._token_request(call, body, spec)

    # ---- Permissions.

    def _subject_access(self, call: Call, body: Mapping[str, Any], spec: Mapping[str, Any]) -> Answer:
        who = User(str(spec.get("user") or ""), _texts(spec, "groups"), str(spec.get("uid") or ""))
        status = self._access(who, call, spec, needs_user=True)
        _require_empty(body, call.namespace)
        return _answer(call, {"namespace": call.namespace} if call.namespace else {}, spec, status)

    def _access(
        self, who: User, call: Call, spec: Mapping[str, Any], *, needs_user: bool = False
    ) -> dict[str, Any]:
        resource, path = (
            _mapping(spec, key) if spec.get(key) is not None else None
            for key in ("resourceAttributes", "nonResourceAttributes")
        )
        causes = []
        if resource is not None and path is not None:
            both = "cannot be specified in combination with resourceAttributes"
            causes.append(("nonResourceAttributes", _shown(path), both))
        if resource is None and path is None:
            one = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            causes.append(("resourceAttributes", "null", one))
        if needs_user and not (who.name or who.groups):
            causes.append(("user", '""', "at least one of user or group must be specified"))
        if call.namespace and resource is not None and (resource.get("namespace") or "") != call.namespace:
            named = json.dumps(resource.get("namespace") or "")
            causes.append(("resourceAttributes.namespace", named, "must match metadata.namespace"))
        if call.namespace and path is not None:
            causes.append(("nonResourceAttributes", _shown(path), "disallowed on this kind of request"))
        if causes:
            raise invalid(
                "",
                "",
                [_cause(f"spec.{field}", value, why) for field, value, why in causes],
                group=AUTHORIZATION,
            )
        if resource is None:
            path = path or {}
            asked: Url | Call = Url(str(path.get("verb") or ""), str(path.get("path") or ""))
        else:
            keys = ("verb", "group", "version", "resource", "namespace", "name", "subresource")
            verb, group, version, plural, namespace, name, subresource = (
                str(resource.get(key) or "") for key in keys
            )
            asked = Call(
                verb, group, version, plural, namespace=namespace, name=name, subresource=subresource
            )
        decision = self._rbac.decide(who, asked)
        return {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})

    def _rules(self, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
        namespace = str(spec.get("namespace") or "")
        if not namespace:
            raise bad_request("no namespace on request")
        granted = self._rbac.granted(user, namespace)
        status: dict[str, Any] = {"resourceRules": [], "nonResourceRules": [], "incomplete": False}
        for rule, _ in granted.rules:
            if rule.resources:
                shown = {"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}
                status["resourceRules"].append(shown | ({"resourceNames": rule.names} if rule.names else {}))
            if rule.urls:
                status["nonResourceRules"].append({"verbs": rule.verbs, "nonResourceURLs": rule.urls})
        return status | ({"evaluationError": granted.problem} if granted.errors else {})

    # ---- Tokens.

    def _token_review(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        token = str(spec.get("token") or "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = _texts(spec, "audiences") or (ISSUER,)
        found = self._users.find_owner(token, wanted)
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        user, audiences = found
        return {"authenticated": True, "user": _user(user), "audiences": audiences}

    def _token_request(self, call: Call, body: Mapping[str, Any], spec: Mapping[str, Any]) -> Answer:
        name, metadata = call.name, _mapping(body, "metadata")
        if (metadata.get("name") or name) != name:
            cause = _cause(
                "metadata.name",
                json.dumps(metadata["name"]),
                "must match the service account name if specified",
            )
            raise invalid("TokenRequest", name, [cause], group=AUTHENTICATION)
        account = self._get("ServiceAccount", call.namespace, name)
        if metadata.get("uid") and metadata["uid"] != account.uid:
            raise conflict(
                "TokenRequest",
                name,
                group=AUTHENTICATION,
                why=(
                    f"the UID in the token request ({metadata['uid']}) does not match the UID of the service"
                    f" account ({account.uid})"
                ),
            )
        lifetime = HOUR if spec.get("expirationSeconds") is None else spec["expirationSeconds"]
        if not isinstance(lifetime, int):
            raise bad_request("expirationSeconds must be an integer")
        told = (
            "less than 10 minutes"
            if lifetime < HOUR / 6
            else "larger than 2^32 seconds"
            if lifetime > 1 << 32
            else ""
        )
        if told:
            cause = _cause("spec.expirationSeconds", str(lifetime), f"may not specify a duration {told}")
            raise invalid("TokenRequest", "", [cause], group=AUTHENTICATION)
        audiences = _texts(spec, "audiences") or (ISSUER,)
        reference = _mapping(spec, "boundObjectRef") or None
        bound = self._bound(call, reference) if reference else None
        issued = self._users.issue(
            call.namespace, account, audiences=audiences, lifetime=dt.timedelta(seconds=lifetime), bound=bound
        )
        return _answer(
            call,
            {
                "name": name,
                "namespace": call.namespace,
                "uid": account.uid,
                "creationTimestamp": _time(self._now()),
            },
            {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": reference},
            {"token": issued.token, "expirationTimestamp": _time(issued.expires)},
        )

    def _bound(self, call: Call, reference: Mapping[str, Any]) -> Bound:
        version, kind, name = (str(reference.get(key) or "") for key in ("apiVersion", "kind", "name"))
        if "/" in version or kind not in {"Pod", "Secret", "Node"}:
            shown = version if "/" in version else f"/{version}"
            raise bad_request(f"cannot bind token to object of type {shown}, Kind={kind}")
        stored = self._get(kind, call.namespace, name)
        if kind == "Pod" and json.loads(stored.data).get("spec", {}).get("serviceAccountName") != call.name:
            raise bad_request(
                f'cannot bind token for serviceaccount "{call.name}" to pod running with different'
                " serviceaccount name."
            )
        uid = reference.get("uid")
        if uid and uid != stored.uid:
            raise conflict(
                kind,
                name,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        return Bound(kind, name, stored.uid)

    def _get(self, kind: str, namespace: str, name: str) -> Stored:
        stored = self._users.find(kind, namespace, name)
        if stored is None:
            raise not_found(f"{kind.lower()}s", name)
        return stored


KINDS: Mapping[tuple[str, str], str] = {
    (AUTHORIZATION, "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    (AUTHORIZATION, "subjectaccessreviews"): "SubjectAccessReview",
    (AUTHORIZATION, "localsubjectaccessreviews"): "LocalSubjectAccessReview",
    (AUTHORIZATION, "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    (AUTHENTICATION, "selfsubjectreviews"): "SelfSubjectReview",
    (AUTHENTICATION, "tokenreviews"): "TokenReview",
    ("", "token"): "TokenRequest",
}
"""The reviews, by the group and the resource (or subresource) that they are POSTed to."""


def _answer(
    call: Call,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any] | None,
    status: Mapping[str, Any],
) -> Answer:
    kind = KINDS[call.group, call.subresource or call.resource]
    return Answer.of(
        {
            "kind": kind,
            "apiVersion": f"{call.group or AUTHENTICATION}/v1",
            "metadata": metadata,
            **({} if spec is None else {"spec": spec}),
            "status": status,
        },
        code=201,
    )


def _user(user: User) -> dict[str, Any]:
    whole = {"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra}
    return {key: value for key, value in whole.items() if value}


def _require_empty(body: Mapping[str, Any], namespace: str) -> None:
    """Refuse a review with metadata, as it is no object."""
    metadata = {
        key: value for key, value in _mapping(body, "metadata").items() if value and key != "managedFields"
    }
    rest = {key: value for key, value in metadata.items() if not (namespace and key == "namespace")}
    if rest:
        why = "must be empty except for namespace" if namespace else "must be empty"
        raise invalid(
            "",
            "",
            [_cause("metadata", json.dumps(metadata, separators=(",", ":")), why)],
            group=AUTHORIZATION,
        )


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = body.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise bad_request(f"{key} must be an object")
    return found


def _texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = body.get(key) or []
    if not isinstance(found, list):
        raise bad_request(f"{key} must be a list")
    return tuple(map(str, found))


def _cause(field: str, value: str, why: str) -> dict[str, str]:
    return {"reason": "FieldValueInvalid", "message": f"Invalid value: {value}: {why}", "field": field}


def _shown(path: Mapping[str, Any]) -> str:
    """Show it with the names of the server's code."""
    return json.dumps({"Path": path.get("path", ""), "Verb": path.get("verb", "")}, separators=(",", ":"))


def _time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
