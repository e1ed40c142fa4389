"""`ouro batch run --on slurm|kubernetes`: the packages start workers by their own configuration.

A scheduler of jobs is replaced by `sbatch` and `scancel` that run the script on this machine. No
real Slurm and no Kubernetes was tried.
"""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from fakes.files import git, make_repository, touch, write_tasks
from fakes.waiting import PATIENCE

SBATCH = """#!/bin/sh
for script; do :; done
cp "$script" {place}/script.$$
setsid bash {place}/script.$$ > {place}/log.$$ 2>&1 < /dev/null &
echo $! >> {place}/jobs
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
echo "$1" >> {place}/cancelled
kill -TERM -- "-$1"
"""


@pytest.fixture
def slurm(tmp_path, ouro):
    """A folder with `sbatch` and `scancel` in front of PATH, and what was submitted."""
    place = tmp_path / "slurm"
    place.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (place / name).write_text(text.format(place=place))
        (place / name).chmod(0o755)
    ouro.more["PATH"] = f"{place}{os.pathsep}{ouro.environment['PATH']}"
    ouro.more["DASK_JOBQUEUE__SLURM__SCHEDULER_OPTIONS__HOST"] = "127.0.0.1"
    ouro.more["DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__ENABLED"] = "false"
    yield place
    for job in _lines(place / "jobs"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(job), signal.SIGKILL)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def configure(ouro, **settings):
    for name, value in settings.items():
        ouro.more[f"DASK_JOBQUEUE__SLURM__{name.upper()}"] = value


def run(ouro, kind, *words):
    batch = ouro.begin("batch", "run", "tasks.yaml", "--json", "--on", kind, "-j", "2", *words)
    out, errors = batch.communicate(timeout=PATIENCE * 4)
    return batch.returncode, out.decode(), errors.decode()


@pytest.mark.timeout(300)
def test_jobs_of_slurm_run_the_tasks_and_are_cancelled_at_the_end(ouro, slurm, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    shop = make_repository(tmp_path / "shop")
    tasks = [{"id": f"t{n}", "repo": str(shop), "prompt": touch(f"a{n}")} for n in range(4)]
    write_tasks(ouro.folder, tasks)
    configure(ouro, cores="1", processes="1", memory="1GB", queue="night", walltime="00:10:00")
    code, out, errors = run(ouro, "slurm")
    assert code == 0, errors
    assert [result["files"] for result in json.loads(out)["results"]] == [
        [f"a{n}"] for n in range(4)
    ]
    assert git(shop, "show", "ouro/licences/t3:a3") == "new"
    jobs = _lines(slurm / "jobs")
    assert len(jobs) == 2
    assert sorted(_lines(slurm / "cancelled")) == sorted(jobs)
    script = next(slurm.glob("script.*")).read_text()
    assert "#SBATCH -p night" in script
    assert "#SBATCH -t 00:10:00" in script
    assert "dask_worker" in script
    assert not any(name in script for name in ("test-model", "say: wrote"))


def test_a_cluster_without_its_configuration_is_named(ouro, slurm, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    write_tasks(ouro.folder, [{"repo": str(make_repository(tmp_path / "a")), "prompt": "say: x"}])
    code, _, errors = run(ouro, "slurm")
    assert (code, "`--on slurm` could not start: " in errors) == (2, True), errors
    assert "cores" in errors
    assert "Traceback" not in errors
    assert _lines(slurm / "jobs") == []


def test_kubernetes_without_a_cluster_is_named(ouro, tmp_path):
    pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")
    ouro.more["KUBECONFIG"] = str(tmp_path / "none")
    write_tasks(ouro.folder, [{"repo": str(make_repository(tmp_path / "a")), "prompt": "say: x"}])
    code, _, errors = run(ouro, "kubernetes")
    assert (code, "`--on kubernetes` could not start: " in errors) == (2, True), errors
    assert "Traceback" not in errors


def test_what_kubernetes_is_asked_for_has_the_image_and_the_number_of_workers():
    operator = pytest.importorskip("dask_kubernetes.operator")
    spec = operator.make_cluster_spec("licences", image="ghcr.io/acme/ouro:1", n_workers=20)
    assert (spec["kind"], spec["spec"]["worker"]["replicas"]) == ("DaskCluster", 20)
    containers = spec["spec"]["worker"]["spec"]["containers"]
    assert [container["image"] for container in containers] == ["ghcr.io/acme/ouro:1"]
