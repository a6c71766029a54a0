"""The private names of Kopf that this package uses, each with its purpose, and functions that use private
attributes of its registries and its vault. No other module touches them.

If a name is missing, the import fails and names it. Kopf may change private names in any release:
tests/plugin/test_kopf_names.py checks that each exists and does what this package relies on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import kopf

TESTED = "1.45.2"
"""The newest version of Kopf that the tests have run with; tests/docs/test_versions.py fails when there is a
newer one."""

try:
    from kopf._cogs.clients.auth import vault_var
    from kopf._cogs.helpers.loaders import preload
    from kopf._cogs.structs.bodies import Body, Meta, Spec, Status
    from kopf._cogs.structs.credentials import (
        AiohttpSession,
        ConnectionInfo,
        KubeContext,
        LoginError,
        Vault,
        VaultItem,
        VaultKey,
    )
    from kopf._cogs.structs.ids import HandlerId
    from kopf._cogs.structs.references import Resource, Selector, select_specific_namespaces
    from kopf._core.actions.execution import cause_var, handler_var
    from kopf._core.actions.invocation import invoke, is_async_fn
    from kopf._core.engines.activities import authenticator
    from kopf._core.engines.indexing import OperatorIndexers
    from kopf._core.engines.posting import settings_var
    from kopf._core.intents.causes import (
        Activity,
        ActivityCause,
        ChangingCause,
        DaemonCause,
        ResourceCause,
        WatchingCause,
        WebhookCause,
    )
    from kopf._core.intents.handlers import (
        ActivityHandler,
        ChangingHandler,
        DaemonHandler,
        IndexingHandler,
        ResourceHandler,
        SpawningHandler,
    )
    from kopf._core.intents.registries import (
        ActivityRegistry,
        OperatorRegistry,
        SmartOperatorRegistry,
        get_callable_id,
    )
    from kopf._core.intents.stoppers import DaemonStopper
    from kopf.cli import run as run_command

    # The attributes `_current`, `_guard` and `_ready` of a vault belong to its instances:
    # tests/plugin/test_kopf_names.py checks them.
    _ = Vault._flush_caches
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"kopf_selectcache cannot work with Kopf {getattr(kopf, '__version__', '?')}, which lacks a name that"
        f" it needs: {error}. Install a version that it is tested with: pip install 'kopf=={TESTED}'"
    ) from error

__all__ = [
    "Activity",  # Which hook is asked for: startup, cleanup, probe.
    "ActivityCause",  # Startup, cleanup, login and probe handlers never wait for a cache.
    "ActivityHandler",  # What our hooks are.
    "ActivityRegistry",  # Where every operator, with whatever registry, asks for its hooks.
    "AiohttpSession",  # Credentials that are a session of the user's own.
    "Body",  # What `as_='view'` returns is one, with `metadata`, `spec` and `status` as of its own items.
    # Its handlers are called again after an error: they need not wait for a cache that is stale.
    "ChangingCause",
    "ChangingHandler",  # Narrowing is refused to kinds whose handlers need a finalizer.
    "ConnectionInfo",  # Credentials as Kopf's logins hand them out.
    "DaemonCause",  # Has the stopper of daemons and timers, which end the waiting for a cache.
    # A daemon whose `when=` turns out false sleeps until it is stopped: one that exits never returns.
    "DaemonHandler",
    # The type of `DaemonCause.stopper`: `async_event` to wait for, `sync_waiter` for threads.
    "DaemonStopper",
    "HandlerId",  # The type of a handler's id.
    "IndexingHandler",  # The type of the handlers that `index_handlers` returns.
    "KubeContext",  # What all credentials have in common: the server.
    "LoginError",  # There are no credentials left.
    "Meta",  # What `metadata` of a body is, for our views of bodies.
    "OperatorIndexers",  # The indices that startup handlers are given, empty as they are then.
    "OperatorRegistry",  # What the operator itself watches, for the warning at the start.
    "Resource",  # To ask Kopf's selectors whether they mean a kind.
    "ResourceCause",  # Has the object that the handler is called for.
    "ResourceHandler",  # Any handler of objects: it has a selector, and `when=`.
    "Selector",  # What a handler was decorated with: asked whether it means a kind.
    # For the fixture `registry`: what Kopf's default registry is, which logs in by itself.
    "SmartOperatorRegistry",
    "SpawningHandler",  # A daemon or timer: narrowing would leave it behind.
    "Spec",  # What `spec` of a body is.
    "Status",  # What `status` of a body is.
    "Vault",  # Kopf's credentials, with re-login when they fail.
    "VaultItem",  # Credentials in the vault, with the sessions that were made of them.
    "VaultKey",  # By which credentials are given back as failed.
    "WatchingCause",  # Says by its type that the object was deleted.
    "WebhookCause",  # Admission: waits for a bounded time, and its object is not yet stored.
    "activity_handlers",  # The handlers of startup, cleanup, login and probes, for checks and commands.
    "admission_handlers",  # The handlers of admission requests, for checks at the start.
    "authenticator",  # Logs in, and again, for the commands that ask a cluster without running the operator.
    "cause_var",  # What the running handler was called for.
    "get_callable_id",  # The id that Kopf gives a handler: decorated, it must stay the same.
    "handler_var",  # The running handler, for its `when=`.
    "has_activities",  # Attributes a call of `ActivityRegistry.iter_handlers` to the default registry.
    "has_credentials",  # Checks that no other request has replaced the refused credentials.
    "index_handlers",  # The handlers of Kopf's indices.
    "invoke",  # Runs a sync function in Kopf's own threads, with context, shield and all.
    "is_async_fn",  # Whether Kopf takes a function for async.
    "log_in_again",  # Has Kopf replace refused credentials, by equal ones as well.
    "log_in_if_empty",  # To go on when Kopf has given up.
    "preload",  # Loads an operator's files and modules as `kopf run` does.
    "remove_credentials",  # Removes refused credentials, of which equal ones may come back.
    "run_command",  # To know `kopf run` in click's context, which alone has the `-n` list.
    "select_specific_namespaces",  # Which of the `-n` are names and not patterns.
    # The settings of the operator that the running code belongs to, in tasks and threads alike.
    "settings_var",
    "vault_var",  # The credentials of that operator.
    "watching_handlers",  # The handlers for which Kopf watches kinds.
]


def activity_handlers(
    registry: OperatorRegistry, activity: Activity | None = None
) -> Collection[ActivityHandler]:
    """Return the handlers of an activity, or of all activities."""
    activities = registry._activities
    return activities.get_all_handlers() if activity is None else activities.get_handlers(activity=activity)


def has_activities(registry: OperatorRegistry, activities: ActivityRegistry) -> bool:
    """Return True if these are the activities of the registry."""
    return registry._activities is activities


def admission_handlers(registry: OperatorRegistry) -> Collection[ResourceHandler]:
    return registry._webhooks.get_all_handlers()


def index_handlers(registry: OperatorRegistry) -> Collection[IndexingHandler]:
    return registry._indexing.get_all_handlers()


def watching_handlers(registry: OperatorRegistry) -> Iterator[ResourceHandler]:
    """Yield all handlers for which Kopf watches objects. Admission handlers are not among them."""
    for handlers in (registry._indexing, registry._watching, registry._spawning, registry._changing):
        yield from handlers.get_all_handlers()


def has_credentials(vault: Vault, key: VaultKey, info: KubeContext) -> bool:
    """Return True if exactly these credentials are in the vault; equal ones of a later login do not count."""
    return (item := vault._current.get(key)) is not None and item.info is info


async def remove_credentials(vault: Vault, key: VaultKey, info: KubeContext) -> bool:
    """Remove credentials as Kopf removes expired ones; return False if they are the only ones, which stay.

    `Vault.invalidate` would remember them, and refuse equal ones of the next login.
    """
    async with vault._guard:
        if has_credentials(vault, key, info):
            if len(vault._current) == 1:
                return False
            await vault._flush_caches(vault._current.pop(key))
        return True


async def log_in_again(vault: Vault, key: VaultKey, info: KubeContext, kept: KubeContext) -> None:
    """Put `kept` in the place of these credentials, have Kopf log in, and wait for it.

    The credentials of the login replace `kept`. The vault is never empty: without credentials Kopf would end
    the operator.
    """
    async with vault._guard:
        if has_credentials(vault, key, info):
            item, vault._current[key] = vault._current[key], VaultItem(kept)
            vault._ready = False
            vault._guard.notify_all()
            await vault._flush_caches(item)
            await vault._guard.wait_for(lambda: vault._ready)


async def log_in_if_empty(vault: Vault) -> None:
    """Have Kopf log in again if there are no credentials, and wait for it: Kopf itself has given up."""
    # These credentials are not in the vault, so that Kopf remembers none as invalid.
    await vault.invalidate(VaultKey(""), KubeContext(server=""))
