"""Run a Job for each CronJob once per period, and tell people about it with Events."""

import time

import kopf

import kopf_selectcache as selectcache

OURS = "example.com/cronjob"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/cronjobs"] = selectcache.EVERYTHING
    select["batch/v1/jobs"] = OURS


@selectcache.reconcile("example.com/v1/cronjobs", owns=["jobs"])
async def reconcile(cache: selectcache.Cache, events, body, name, spec, status, patch, **_):
    for job in cache.list_cached("jobs", owner=body):
        if (outcome := outcome_of(job)) is not None:
            type_ = "Normal" if outcome == "Complete" else "Warning"
            events.record(body, type_, f"Job{outcome}", f"Job {job['metadata']['name']} has ended")
            await cache.live.delete("jobs", job["metadata"]["name"], namespace=job["metadata"]["namespace"])

    now, period = time.time(), spec.get("period", 60)
    begun = int(now // period)
    if status.get("begun") != begun:  # The state decides, not an Event.
        job = make_job(f"{name}-{begun}", body, spec)
        kopf.append_owner_reference(job, owner=body)
        await cache.live.ensure(job)
        patch.status["begun"] = begun
        events.record(body, "Normal", "JobCreated", f"Created Job {job['metadata']['name']}")
        events.record(body, "Normal", "Waiting", f"The next Job follows in {period} s")
    return (begun + 1) * period - now


def outcome_of(job):
    conditions = job.get("status", {}).get("conditions", [])
    return next(
        (c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None
    )


def make_job(job_name, owner, spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {OURS: owner["metadata"]["name"]},
        },
        "spec": {"template": spec["template"]},
    }
