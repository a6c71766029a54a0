"""A read as data. Built and validated once, from the arguments of the read; all other functions take it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from kopf_selectcache._errors import DeclarationError, ReadError, SelectCacheError, require
from kopf_selectcache.core.redact import clipped, shown, shown_by_type
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.store.projection import Path
from kopf_selectcache.core.store.record import is_number
from kopf_selectcache.selectors.kind_keys import AnyKey, as_given, key_of, text_of, to_dict
from kopf_selectcache.selectors.object_key import Key, split_hint
from kopf_selectcache.selectors.selector import Selector, listed_namespaces
from kopf_selectcache.selectors.signatures import miscalled
from kopf_selectcache.settings.checks import PATHS, wrong_path

from .formats.formats import RAISE, Form, form_of
from .matcher import MAX_MEMOISED, Field, Label, Namespaces, SortBy, Where

Pairs: TypeAlias = tuple[tuple[str, str], ...]
Selectors: TypeAlias = Callable[[str | Pairs | None, str | None], Selector]
"""A memoised constructor of selectors, from labels and a namespace."""

_REQUEST_CHARACTERS = 500
"""Characters of a request in a message."""


class AtLeast(NamedTuple):
    """The version that the answer of a read must be as new as, and the kind of the object that has it."""

    version: str
    group: str = ""
    kind: str = ""
    """Empty if a version was given, and no object."""
    uid: str = ""
    """That of the object; empty likewise."""


class Request(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One read. Its `repr` is the call as Python, without values that may be those of a Secret."""

    verb: str
    kind: AnyKey = ""
    """Empty for a read of all kinds."""
    name: str | None = None
    """The name of one object. None for reads of several objects, and of none."""
    namespace: str | None = None
    by_key: bool = False
    """True if a `Key` was given in place of the name."""
    selector: Selector | None = None
    """The region of a read of several objects."""
    uid: str | None = None
    """The uid of the object that `is_deleted` means, or of the owner of several objects."""
    controller: bool = False
    """True if the owner must be the controller."""
    at_owner: bool = False
    """True if the namespace of several objects is that of their owner, and was not given."""
    where: Where | None = None
    index: Mapping[str, object] | None = None
    sort_by: SortBy | None = None
    limit: int | None = None
    max_age: float | None = None
    at_least: AtLeast | None = None
    form: Form | None = None
    """The form of the objects; None for dicts."""
    whole: bool = False
    timeout: float | None = None
    default: Any = RAISE
    obj: str = ""
    """The object of a write that is given as a whole, as messages have it, such as `Pod shop/web-1`."""
    text: str = ""
    """Its name in messages if its author has called no method of the cache: whose patch of which object."""
    is_plain: bool = True
    """False if an option is given: then the request has to be compared with the kind."""

    def region(self) -> Selector:
        """Return all requested objects as a selector; raise DeclarationError if the name is none."""
        if self.name is None:
            return self.selector or Selector()
        return Selector(names=[self.name], namespaces=None if self.namespace is None else [self.namespace])

    @property
    def kind_text(self) -> str:
        """The kind in words, as it was given."""
        if isinstance(self.kind, str):
            return self.kind
        return self.kind.__name__ if isinstance(self.kind, type) else text_of(key_of(self.kind))

    @property
    def subject(self) -> str:
        """The object, or the objects, in words."""
        kind = self.kind_text
        if self.text or self.obj or not kind:
            return self.text or clipped(self.obj, 300) or f"cache.{self.verb}()"
        if self.name is not None:
            within = f" in {self.namespace}" if self.namespace else ""
            found = f"{kind}/{self.name}{within}"
            return found if len(found) <= 300 else clipped(found, 300)
        selector = self.selector or Selector()
        spaces, names = (",".join(each or ()) for each in (selector.namespaces, selector.names))
        wanted = ",".join(str(each) for each in (selector.labels, selector.fields, names) if each)
        return clipped(f"{kind}{wanted and f' with {wanted}'}{spaces and f' in {spaces}'}", 500)

    def __repr__(self) -> str:
        kind = repr(self.kind) if type(self.kind) is str else as_given(self.kind)
        parts = [kind] if self.kind else []
        if self.name is not None:
            parts.append(repr(self.name))
            parts += [] if self.namespace is None else [f"namespace={self.namespace!r}"]
        elif self.selector is not None:
            parts += ["predicate"] if self.verb == "wait_for" else []
            parts += _write_selector(self.selector.in_namespaces(None) if self.at_owner else self.selector)
        parts += [] if self.is_plain else self._write_options()
        if self.default is not RAISE:
            parts.append(f"default={'None' if self.default is None else '...'}")
        text = f"cache.{self.verb}({', '.join(parts)})"
        return text if len(text) <= _REQUEST_CHARACTERS else clipped(text, _REQUEST_CHARACTERS)

    def _write_options(self) -> list[str]:
        texts = [
            f"{name}={{{', '.join(f'{shown(key)}: ...' for key in given)}}}"
            for name in ("where", "index")
            if (given := getattr(self, name))
        ]
        if self.uid is not None and self.name is None:
            texts += ["owner=...", *(["controller=True"] if self.controller else [])]
        if self.sort_by is not None:
            texts.append(f"sort_by={'...' if callable(self.sort_by) else shown(self.sort_by)}")
        texts += [
            f"{name}={value!r}"
            for name in ("limit", "max_age", "whole", "timeout")
            if (value := getattr(self, name)) is not None and value is not False
        ]
        if self.at_least is not None:
            texts.append(f"at_least={clipped(self.at_least.version, 50)!r}")
        if self.form is not None and self.form.given is not None:
            given = self.form.given
            name = given.__name__ if isinstance(given, type) else repr(given) if given == "view" else "..."
            texts.append(f"as_={name}")
        return texts


replace = msgspec.structs.replace


def in_namespace(request: Request) -> str:
    """Return the call of a request with a variable as its namespace: a placeholder would be copied."""
    return repr(replace(request, namespace="namespace")).replace(
        "namespace='namespace'", "namespace=namespace"
    )


def _write_selector(selector: Selector) -> list[str]:
    parts = [
        f"{name}={str(value)!r}"
        for name in ("labels", "fields")
        if (value := getattr(selector, name)) is not None
    ]
    parts += [f"names={list(selector.names)}"] if selector.names is not None else []
    if (spaces := selector.namespaces) is not None:
        parts.append(f"namespace={(spaces[0] if len(spaces) == 1 else list(spaces))!r}")
    return parts


# ---- From the arguments of a read.


class Requests:
    """Builds the requests of one operator. Those of texts alone are memoised: reads repeat a few dozen."""

    def __init__(self) -> None:
        self._selectors = lru_cache(MAX_MEMOISED)(_selector)
        self._plain = lru_cache(MAX_MEMOISED)(self._plain_request)

    def one(
        self,
        verb: str,
        kind: AnyKey,
        name: Any,
        namespace: Any,
        *,
        default: object = RAISE,
        uid: str | None = None,
        **options: object,
    ) -> Request:
        """Return the request for one object; raise ReadError, or TypeError for names given in a wrong way."""
        by_key = isinstance(name, Key)
        if not isinstance(name, str):
            name, namespace = split_name(verb, kind, name, namespace)
        request = Request(
            verb=verb, kind=kind, name=name, namespace=namespace, by_key=by_key, uid=uid, default=default
        )
        is_plain = isinstance(name, str) and isinstance(namespace, str | None) and "/" not in name
        if not is_plain or uid is not None:
            require_names(request)
        return _with_given(request, options)

    def several(self, verb: str, kind: AnyKey, options: Mapping[str, Any]) -> Request:
        """Return the request for several objects; raise ReadError for arguments that make no sense."""
        if "owner" in options or "controller" in options:
            options, of_owner = _split_owner(verb, options)
            texts = map(options.get, _TEXTS)
            plain = self.plain(verb, kind, *texts) if options.keys() <= {*_TEXTS} else None
            return replace(plain or self.several(verb, kind, options), is_plain=False, **of_owner)
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        if given.keys() <= {*_TEXTS} and (memoised := self.plain(verb, kind, *map(given.get, _TEXTS))):
            return memoised
        try:
            chosen = (options.get(name) for name in _SELECTING)
            selector = selector_of(self._selectors, *chosen)
        except DeclarationError as error:
            raise as_read_error(verb, error) from error
        rest = {name: value for name, value in given.items() if name not in _SELECTING}
        return _with_given(Request(verb=verb, kind=kind, selector=selector), rest)

    def plain(
        self, verb: str, kind: AnyKey, labels: Label = None, namespace: Namespaces = None, as_: object = None
    ) -> Request | None:
        """Return a memoised request; None if an argument is no text, and has perhaps no hash that lasts."""
        if (
            type(kind) is not str
            or (namespace is not None and type(namespace) is not str)
            or (as_ is not None and type(as_) is not str)
        ):
            return None
        pairs: str | Pairs | None
        if labels is None or type(labels) is str:
            pairs = labels
        elif type(labels) is dict:
            for value in labels.values():
                if type(value) is not str:
                    return None
            pairs = tuple(labels.items())
        else:
            return None
        try:
            return self._plain(verb, kind, pairs, namespace, as_)
        except DeclarationError as error:
            raise as_read_error(verb, error) from error

    def _plain_request(
        self, verb: str, kind: str, labels: str | Pairs | None, namespace: str | None, as_: str | None
    ) -> Request:
        request = Request(verb=verb, kind=kind, selector=self._selectors(labels, namespace))
        return _with_given(request, {"as_": as_})


_TEXTS = ("labels", "namespace", "as_")
"""The options of requests that are memoised if they are texts."""

_SELECTING = ("labels", "fields", "names", "namespace")


def _selector(labels: str | Pairs | None, namespace: str | None) -> Selector:
    return Selector(
        dict(labels) if isinstance(labels, tuple) else labels,
        namespaces=None if namespace is None else [namespace],
    )


def selector_of(
    memo: Selectors, labels: Label, fields: Field, names: Collection[str] | None, namespace: Namespaces
) -> Selector:
    """Return the selector of a read of several objects; raise DeclarationError if there is none."""
    if fields is None and names is None and (namespace is None or type(namespace) is str):
        if labels is None or type(labels) is str:
            return memo(labels, namespace)
        if type(labels) is dict and all(type(value) is str for value in labels.values()):
            return memo(tuple(labels.items()), namespace)
    return Selector(labels, fields=fields, names=names, namespaces=listed_namespaces(namespace))


def _with_given(request: Request, options: Mapping[str, object]) -> Request:
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return with_options(request, given) if given or isinstance(request.kind, type) else request


def as_read_error(verb: str, error: DeclarationError) -> ReadError:
    """Return a mistake in a selector as an error of a read: Kopf would drop a creation for the other."""
    what, remedy = (text.replace("namespaces=", "namespace=") for text in (error.what, error.remedy))
    return ReadError(f"cache.{verb}(): {what}", remedy=remedy)


def requested_key(verb: str, kind: AnyKey) -> KindKey:
    """Return the key of the kind of a read; raise ReadError if it names none."""
    try:
        return key_of(kind)
    except DeclarationError as error:
        raise as_read_error(verb, error) from error


def with_options(request: Request, given: Mapping[str, Any]) -> Request:
    """Return the request with the options that were given; raise ReadError for those that make no sense."""
    call = f"cache.{request.verb}()"
    options = {name: value for name, value in given.items() if name != "as_"}
    _check_objects(call, options)
    _check_numbers(call, options)
    if (at_least := options.get("at_least")) is not None:
        options["at_least"] = _at_least(call, at_least)
    request = replace(request, is_plain=False, **options)
    return with_form(request, given.get("as_"), request.kind if isinstance(request.kind, type) else None)


def with_form(request: Request, as_: Any, class_: type | None) -> Request:
    """Return a request with the given form, or else with the form of the class that names its kind."""
    call = f"cache.{request.verb}()"
    if as_ is not None:
        return replace(request, form=form_of(call, as_), is_plain=False)
    if class_ is not None:
        return replace(request, form=form_of(call, class_)._replace(given=None), is_plain=False)
    return request


def _at_least(call: str, given: object) -> AtLeast:
    """Return the version that a read must be as new as; raise ReadError if it has no order."""
    wanted = "a resourceVersion as a text, or an object that has one"
    if isinstance(given, str):
        found = AtLeast(given)
    else:
        obj = given if isinstance(given, Mapping) else to_dict(given)
        metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
        version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
        if obj is None or not isinstance(version, str):
            what = f"{call}: at_least is {shown_by_type(given)} without a resourceVersion"
            raise ReadError(what, remedy=f"Give {wanted}")
        group = str(obj.get("apiVersion") or "").rpartition("/")[0]
        uid = str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""
        found = AtLeast(version, group, str(obj.get("kind") or ""), uid)
    if not is_number(found.version):
        raise ReadError(
            f"{call}: the version in at_least isn't a number, so it can't be compared",
            remedy=f"Give {wanted}\nUse max_age= instead",
        )
    return found


def _check_numbers(call: str, options: Mapping[str, Any]) -> None:
    whole = options.get("whole", False)
    _require(isinstance(whole, bool), call, "whole", whole, "True or False")
    for name in ("max_age", "timeout"):
        value = options.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        _require(value is None or is_number, call, name, value, "a number of seconds, 0 or more")
    limit = options.get("limit")
    is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    _require(limit is None or is_count, call, "limit", limit, "a number of objects")


def _check_objects(call: str, options: Mapping[str, Any]) -> None:
    where, index, sort_by = (options.get(name) for name in ("where", "index", "sort_by"))
    if where is not None:
        require_where(call, where)
    by_name = "a dict of values by the names of indexes, such as {'image': 'nginx'}"
    _require(index is None or isinstance(index, Mapping), call, "index", index, by_name)
    if isinstance(sort_by, str) and sort_by.startswith("-"):
        what = f"{call}: sort_by is {shown(sort_by)}, but it can't sort in descending order"
        raise ReadError(what, remedy="Reverse the answer: [...][::-1]")
    if sort_by is not None and not callable(sort_by):
        _require_path(call, "sort_by", sort_by)


def require_where(call: str, where: object, error: type[SelectCacheError] = ReadError) -> None:
    """Raise the error unless this is a dict of values by path, or None."""
    wanted = "a dict of values by path, such as {'spec.nodeName': 'node01'}"
    if where is None or not isinstance(where, Mapping):
        require(where is None, error, call, "where", where, wanted)
        return
    for path, value in where.items():
        _require_path(call, "a path of where", path, error)
        if not _is_json(value):
            require(False, error, call, "a value of where", value, "a value that JSON has")


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, int, float))


def _require(fits: object, call: str, argument: str, given: object, wanted: str) -> None:
    if not fits:  # Most arguments fit, and need no call.
        require(fits, ReadError, call, argument, given, wanted)


def split_name(verb: str, kind: object, given: object, namespace: Any) -> tuple[Any, Any]:
    """Return the name and namespace of a key; raise TypeError for a pair, and for another namespace."""
    if isinstance(given, Key):
        if namespace is None:
            return given.name, given.namespace
        what, call = "a Key and namespace=", written_call(verb, kind, given)
    elif isinstance(given, tuple):
        is_pair = len(given) == 2 and all(isinstance(each, str) and each for each in given)
        of_pair = (given[1], given[0]) if is_pair else (None, None)
        what, call = "a tuple as the name", written_call(verb, kind, *of_pair)
        call = f"{call}\n{CHECK_NAMESPACE}" if is_pair else call
    else:
        return given, namespace
    raise miscalled(f"cache.{verb}() was given {what}", remedy=f"Write: {call}")


CHECK_NAMESPACE = "Check which of the two is the namespace"
"""Stands beside a call whose name and namespace may be swapped."""


def written_call(
    verb: str,
    kind: object,
    name: object,
    namespace: object = None,
    options: Mapping[str, object] | None = None,
) -> str:
    """Return the call to write for an object. What is no text is a name of a variable. A name and a namespace
    that were given as two texts are both written with their arguments: they may have been swapped.

    >>> written_call("live.patch", "pods", "web-1", "shop")
    "cache.live.patch('pods', name='web-1', changes={...}, namespace='shop')"
    >>> written_call("get", "pods", "web-1", "shop", {"default": None, "at_least": {}})
    "cache.get('pods', name='web-1', namespace='shop', default=None, at_least=...)"
    >>> written_call("live.patch", "pods", "web-1")
    "cache.live.patch('pods', 'web-1', {...}, namespace=namespace)"
    >>> written_call("get", object, Key("web-1", namespace="shop"))
    "cache.get(kind, Key('web-1', namespace='shop'))"
    """
    argument, between = _BETWEEN.get(verb, ("", ""))
    by_name = isinstance(name, str) and isinstance(namespace, str)
    parts = [
        repr(kind) if isinstance(kind, str) else "kind",
        f"{'name=' if by_name else ''}{name!r}" if isinstance(name, (str, Key)) else "name",
        *([f"{argument}={between}" if by_name else between] if between else []),
    ]
    if not isinstance(name, Key):
        parts.append(f"namespace={namespace!r}" if isinstance(namespace, str) else "namespace=namespace")
    parts += [f"{key}={'None' if value is None else '...'}" for key, value in (options or {}).items()]
    return clipped(f"cache.{verb}({', '.join(parts)})", _REQUEST_CHARACTERS)


_BETWEEN = {"live.patch": ("changes", "{...}"), "live.update": ("function", "function")}
"""The argument that comes after the name, and its value as examples have it."""


def require_names(request: Request) -> None:
    """Raise ReadError unless the name and namespace are texts, and the uid is one if it is given."""
    call, uid = f"cache.{request.verb}()", request.uid
    _require(isinstance(request.name, str), call, "name", request.name, "a text")
    if request.namespace is None and (hint := split_hint(request.name or "")):
        what = f"{call}: no object can have the name {clipped(repr(request.name), 200)}"
        raise ReadError(what, remedy=hint)
    _require(isinstance(request.namespace, str | None), call, "namespace", request.namespace, "a text")
    _require(uid is None or (isinstance(uid, str) and uid), call, "uid", uid, "the metadata.uid of an object")


def _split_owner(verb: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options with the namespace of the owner instead of it, and what to add to the request."""
    call, rest = f"cache.{verb}()", dict(options)
    has_owner, owner, controller = "owner" in rest, rest.pop("owner", None), rest.pop("controller", False)
    _require(isinstance(controller, bool), call, "controller", controller, "True or False")
    if not has_owner:
        raise ReadError(f"{call}: controller= needs owner=", remedy="Write: owner=body, controller=True")
    uid, namespace = owner_of(verb, owner)
    at_owner = namespace is not None and rest.get("namespace") is None
    if at_owner:
        rest["namespace"] = namespace
    return rest, {"uid": uid, "controller": controller, "at_owner": at_owner}


def owner_of(verb: str, owner: object) -> tuple[str, str | None]:
    """Return the uid and namespace of the owner that a read was given."""
    call = f"cache.{verb}()"
    if not isinstance(owner, Mapping):
        obj = to_dict(owner)
        _require(obj is not None, call, "the owner", owner, "the body of an object")
        owner = obj or {}
    metadata = owner.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    uid, namespace = metadata.get("uid"), metadata.get("namespace")
    if not isinstance(uid, str) or not uid:
        raise ReadError(f"{call}: the owner has no metadata.uid", remedy="Give the body of an object")
    return uid, namespace if isinstance(namespace, str) else None


def _require_path(call: str, argument: str, given: object, error: type[SelectCacheError] = ReadError) -> None:
    """Raise the error unless this can be a path of keys."""
    keys = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(key, str) for key in keys):
        require(False, error, call, argument, given, "a path such as 'metadata.name'")
    if why := wrong_path(cast("Path", given)):
        raise error(f"{call}: {argument}, {shown(given)}, {why}", remedy=PATHS)
