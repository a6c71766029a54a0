"""Messages about the condition of an informer or a stream: the failure, and the one thing to change. The log,
the probe and the errors of reads use them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from kopf_selectcache._errors import DeclarationError, call_of
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import NOTHING, Phrase, clipped
from kopf_selectcache.core.selection.kinds import Kind, KindKey
from kopf_selectcache.selectors.kind_keys import SETTINGS, Site, unserved
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.checks import readable

from .memory import RETRY_EVICTED_SECONDS, Evicted

LOOKED_FOR = "\nThe cache waits for it"
"""The end of the remedy for a declared kind that is not served."""

CHECK = "selectcache check app.py"
"""The command that checks all declarations with the operator's own login."""


class Mistake(NamedTuple):
    """A bug in this package, by the name of the exception."""

    error: str


Failure: TypeAlias = Refusal | Lost | Silent | NotServed | DeclarationError | Evicted | Mistake
"""The cause of a condition: the server's answer, a failed request, or a declaration that fails."""


class Subject(Protocol):
    """The stream, or the informer, that a condition is about."""

    @property
    def kind(self) -> Kind | None: ...
    @property
    def filter(self) -> Branches: ...
    @property
    def version(self) -> str: ...
    def held(self) -> int:
        """Return the number of stored objects."""


class Described(NamedTuple):
    """A failure in words."""

    what: Phrase
    """The failure without the server's words, which may differ each time."""
    remedy: Phrase
    """The one thing to change."""
    said: str = ""
    """The server's words."""
    fetch: str | None = ""
    """The arguments of reads that ask the server meanwhile; None if they would fail as well."""

    @property
    def message(self) -> Phrase:
        return Phrase("%(what)s: %(said)s", what=self.what, said=self.said) if self.said else self.what


_NONE = Described(NOTHING, NOTHING)


_ASKED_AGAIN = Phrase("The cache keeps retrying")


SOON = Phrase("The cache keeps retrying: a server that has just started refuses everybody")
"""The remedy for a refusal that may be transient."""


def describe(
    failure: Failure | None, subject: Subject, key: KindKey, line: str, verb: str, site: Site = SETTINGS
) -> Described:
    """Return a failure in words. `line` is the assignment or the call that declares the kind; `verb` is that
    of the request, `get` for discovery.
    """
    log_in = Phrase(f"Correct {site.login}\nThe cache keeps retrying")

    def of_subject(template: str, **parts: object) -> Phrase:
        return Phrase(f"%(resource)s: {template}", resource=subject, **parts)

    def of_declared(template: str, **parts: object) -> Phrase:
        return Phrase(template, declared=line, **parts)

    match failure:
        case None:
            return _NONE
        case NotServed():
            return Described(
                Phrase("%(problem)s", problem=failure),
                Phrase(f"%(advice)s{LOOKED_FOR}", advice=unserved(key, line)),
            )
        case DeclarationError():
            what = Phrase("%(problem)s", problem=failure.what)
            if str(subject) not in failure.what:
                what = Phrase("the filter of %(resource)s: %(problem)s", resource=subject, problem=what)
            return Described(what, Phrase("%(advice)s", advice=failure.remedy))
        case Evicted():
            return _evicted(failure, subject, line)
        case Mistake(error):
            return Described(
                of_subject("a bug in kopf_selectcache: %(error)s", error=error),
                Phrase("Report it, with the traceback in the operator's log"),
            )
        case Refusal(403):
            return _forbidden(failure, subject, line, verb, site)
        case Refusal(404):
            return Described(
                of_subject("the cluster does not serve them"),
                of_declared(
                    f"Install the definition of %(resource)s\nOr remove %(declared)s{LOOKED_FOR}",
                    resource=subject,
                ),
            )
        case Refusal(400) | Refusal(422):
            return Described(
                of_subject("the server refuses the filter %(filter)s", filter=subject.filter),
                of_declared(
                    "Give %(declared)s a selector that the server supports for this kind"
                    + (f"\nTo try it: {CHECK}" if site.has_command else "")
                ),
                said=failure.message,
            )
        case Refusal(405):
            return Described(
                of_subject("the server can't %(verb)s them", verb=verb),
                of_declared(f"Remove %(declared)s\nTo ask the server: {call_of('fetch')}"),
            )
        case Refusal(401):
            return Described(
                of_subject(f"the server does not accept the credentials of {site.whose}"),
                log_in,
                said=failure.message,
            )
        case Refusal(code, reason):
            answer = f"{code} {reason}".rstrip()
            return Described(of_subject("the server answers %(answer)s", answer=answer), _ASKED_AGAIN)
        case Lost(why, outside=True):
            return Described(
                of_subject(
                    "the server, or a proxy in front of it, ignores the selector %(filter)s",
                    filter=subject.filter,
                ),
                of_declared(
                    "Correct the server or proxy that ignores labelSelector or fieldSelector\nOr give"
                    " %(declared)s a selector that it supports"
                ),
                said=why,
            )
        case Lost(why, unauthorized=True):
            return Described(of_subject("%(why)s", why=why), log_in)
        case Lost(why, transform=True, argument=argument, besides=besides):
            return Described(
                of_subject("%(why)s", why=why),
                of_declared(
                    "Correct the %(argument)s of %(declared)s%(besides)s", argument=argument, besides=besides
                ),
                fetch="whole=True",
            )
        case Lost(why, too_large=True):
            return Described(
                of_subject("the answer is too large: %(why)s", why=why),
                of_declared(
                    "Give %(declared)s a filter that selects less\nOr allow larger answers:"
                    " settings.selectcache.max_page_bytes = ...\nThe cache keeps retrying"
                ),
                fetch=None,
            )
        case Lost(why):
            return Described(of_subject("%(why)s", why=why), Phrase("The cache keeps retrying"))
        case _:  # Silent.
            return Described(of_subject("the server has stopped sending"), _ASKED_AGAIN)


def asking(described: Described, site: Site = SETTINGS) -> Phrase:
    """Return the remedy for a failure that lasts, with the reads that ask the server meanwhile."""
    if (given := described.fetch) is None:
        meanwhile = ""
    else:
        reads = f"{call_of('fetch', given)} and {call_of('fetch_list', given)}"
        meanwhile = f"\nMeanwhile, {reads} ask the server"
    return Phrase(
        f"%(remedy)s{meanwhile}{_command('To see what the server answers', site)}",
        remedy=described.remedy,
    )


def _command(purpose: str, site: Site) -> str:
    return f"\n{purpose}: {CHECK}" if site.has_command else ""


def _declaration(subject: Subject, line: str) -> Phrase:
    return Phrase("for %(declared)s, %(filter)s", declared=line, filter=clipped(subject.filter, 200))


def _forbidden(refusal: Refusal, subject: Subject, line: str, verb: str, site: Site) -> Described:
    if verb == "get":
        return Described(
            Phrase(
                f"%(resource)s: {site.whose} does not have permission to discover what the cluster serves",
                resource=subject,
            ),
            Phrase("Bind it to the ClusterRole system:discovery"),
            said=refusal.message,
        )
    kind, filter_ = subject.kind, subject.filter
    spaces, names = (filter_.namespaces, filter_.names) if isinstance(filter_, Selector) else (None, None)
    # A list and watch of several namespaces is one of all.
    where = f" in the namespace {spaces[0]}" if spaces is not None and len(spaces) == 1 else ""
    rule = (
        f"apiGroups: [{kind.group!r}], resources: [{kind.plural!r}]"
        if kind is not None
        else f"the resource {subject}"
    )
    if names is not None and len(names) == 1:  # The server allows a list and a watch of that name.
        rule += f", resourceNames: {list(names)!r}"
    anywhere = " in a ClusterRole" if not where and kind is not None and kind.namespaced else ""
    return Described(
        Phrase(
            f"%(resource)s: {site.whose} does not have permission to %(verb)s them%(where)s",
            resource=subject,
            verb=verb,
            where=where,
        ),
        Phrase(
            "Grant it the verbs list and watch%(role)s: %(rule)s (%(told)s)%(narrower)s"
            f"{_command('To see all missing permissions', site)}",
            role=where or anywhere,
            rule=rule,
            narrower=f"\nOr, for a single namespace, {site.one_namespace}"
            if anywhere and spaces is None
            else "",
            told=_declaration(subject, line),
        ),
        said=refusal.message,
    )


def _evicted(evicted: Evicted, subject: Subject, declared: str) -> Described:
    objects, size, limit, total = evicted.excess
    limit_text = f"{'max_bytes=' if total is None else 'settings.selectcache.max_bytes = '}{limit!r}"
    grown = "it" if total is None else f"all caches together, {readable(total)},"
    then = (
        "The previous filter is still in use"
        if evicted.is_next
        else f"The cache retries about every {RETRY_EVICTED_SECONDS / 60:g} minutes\n"
        f"Meanwhile, {call_of('fetch')} asks the server"
    )
    return Described(
        Phrase(
            "%(resource)s: the %(store)s was emptied, because %(grown)s exceeded %(limit)s",
            resource=subject,
            store="cache for the new filter" if evicted.is_next else "cache",
            grown=grown,
            limit=limit_text,
        ),
        Phrase(
            "Select less in %(declared)s, or keep less of each object: Cached(..., keep=[...])\n"
            "Or raise %(limit)s\n%(then)s",
            declared=declared,
            limit=limit_text,
            then=then,
        ),
        said=f"it had {objects:,} {'object' if objects == 1 else 'objects'} with"
        f" {clipped(evicted.filter, 200)}, {readable(size)}",
    )
