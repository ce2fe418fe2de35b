"""The manifests of docs/kubernetes have no field that their kind does not have."""

import yaml

from tests.docs.pages import DOCS

RAY_JOB = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {
        *("activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy", "entrypoint"),
        *("entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId", "managedBy", "metadata"),
        *("preRunningDeadlineSeconds", "rayClusterSpec", "runtimeEnvYAML", "shutdownAfterJobFinishes"),
        *("submissionMode", "submitterConfig", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished"),
    },
    "spec.rayClusterSpec": {
        *("authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec"),
        *("headServiceAnnotations", "managedBy", "rayVersion", "suspend", "upgradeStrategy", "workerGroupSpecs"),
    },
    "spec.rayClusterSpec.headGroupSpec": {
        *("enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType", "template"),
    },
    "spec.rayClusterSpec.workerGroupSpecs": {
        *("groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts", "rayStartParams"),
        *("replicas", "resources", "scaleStrategy", "suspend", "template"),
    },
}
"""The fields of ray.io/v1, from KubeRay's API reference."""


def test_the_ray_job_has_fields_that_ray_jobs_have():
    manifest = yaml.safe_load((DOCS / "kubernetes" / "rayjob.yaml").read_text(encoding="utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    for path, fields in RAY_JOB.items():
        for level in levels(manifest, path):
            assert level.keys() <= fields, path
    spec = manifest["spec"]
    assert spec["backoffLimit"] > 0
    assert spec["entrypoint"].startswith("art-otel convert ")
    assert "--engine ray" in spec["entrypoint"]
    pods = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    images = {container["image"] for pod in pods for container in pod["template"]["spec"]["containers"]}
    assert len(images) == 1
    assert all(image.endswith(spec["rayClusterSpec"]["rayVersion"]) for image in images)


def levels(manifest, path):
    """What stands at a path, each where there are several."""
    level = manifest
    for name in path.split(".") if path else ():
        level = level[name]
    return level if isinstance(level, list) else [level]
