"""Log why a job failed, whether another job retries it, and which job was deleted before it ended.

The only requests: one for each job that leaves the cache before it has ended.
"""

import kopf

import kopf_selectcache as selectcache

RUN = "example.com/run-id"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["batch/v1/jobs"] = RUN
    select["v1/pods"] = RUN


@kopf.on.event("batch", "v1", "jobs", labels={RUN: kopf.PRESENT})
@selectcache.with_cache
def observe(cache: selectcache.SyncCache, name, namespace, labels, status, type, logger, **_):
    if type == "DELETED" or not status.get("failed"):
        return
    run = labels[RUN]
    # Complete: all objects with this label are inside the filter.
    for pod in cache.list("pods", namespace=namespace, labels={RUN: run, "job-name": name}):
        for container in pod["status"].get("containerStatuses", []):
            if ended := container.get("state", {}).get("terminated"):
                logger.info(f"run {run}: {pod['metadata']['name']} ended with {ended['exitCode']}")
    others = cache.list("jobs", namespace=namespace, labels={RUN: run})
    if any(job["status"].get("active") for job in others):
        logger.info(f"run {run}: retried by another job")
    else:
        logger.info(f"run {run}: failed for good")


# This also runs for jobs that were deleted while no watch was open.
@selectcache.on.change("jobs", entered=False, updated=False)
async def depart(cache: selectcache.Cache, name, namespace, uid, labels, status, logger, **_):
    has_ended = status.get("completionTime") or status.get("failed")
    # A job that loses the label leaves the cache, too: only the server knows whether it was deleted.
    if not has_ended and await cache.is_deleted("jobs", name, namespace=namespace, uid=uid):
        logger.info(f"run {labels[RUN]}: {name} was deleted before it ended")
