"""The files of examples/cluster: they parse, their fields exist, and their parts fit each other and weft."""

import re
import shutil
import subprocess

import pytest

from tests.harness.processes import ROOT
from weft._engine.processes import job_secret, launchers
from weft.tools.cli import parse

FOLDER = ROOT / "examples" / "cluster"
PAGE = ROOT / "docs" / "processes.md"


def parse_yaml(text):
    """Return the documents of a YAML text in block style: mappings, lists, numbers, truth values and texts. Anything else is an error."""
    documents = []
    for part in re.split(r"^---$", text, flags=re.MULTILINE):
        lines = [
            (len(line) - len(line.lstrip()), line.strip())
            for line in part.splitlines()
            if line.strip() and not line.lstrip().startswith("#")
        ]
        value, remaining = _block(lines, 0)
        assert not remaining, f"cannot read {remaining[0]}"
        documents.append(value)
    return documents


def _block(lines, indent):
    assert lines and lines[0][0] == indent, (
        f"expected something at column {indent}, got {lines[:1]}"
    )
    return (_list if re.match(r"-( |$)", lines[0][1]) else _mapping)(lines, indent)


def _list(lines, indent):
    items = []
    while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
        text = lines[0][1][2:]
        if re.fullmatch(r"[\w.-]+:( .*)?", text):
            value, lines = _mapping([(indent + 2, text), *lines[1:]], indent + 2)
        else:
            value, lines = _scalar(text), lines[1:]
        items.append(value)
    return items, lines


def _mapping(lines, indent):
    table = {}
    while lines and lines[0][0] == indent:
        match = re.fullmatch(r"([\w./-]+):(?: (.+))?", lines[0][1])
        assert match, f"no key in {lines[0][1]!r}"
        key, text = match.groups()
        assert key not in table, f"{key} is there twice"
        table[key], lines = (_scalar(text), lines[1:]) if text else _block(lines[1:], lines[1][0])
    return table, lines


def _scalar(text):
    if text[0] == '"':
        assert text[-1] == '"' and len(text) > 1
        return text[1:-1]
    assert text[0] not in "[{&*!|>%@`'" and ": " not in text and " #" not in text, (
        f"cannot read {text!r}"
    )
    return {"true": True, "false": False}.get(text, int(text) if text.isdecimal() else text)


#: the fields that may be where, by the types of Kubernetes and JobSet
FIELDS = {
    "Secret": {"": "apiVersion kind metadata stringData"},
    "NetworkPolicy": {
        "": "apiVersion kind metadata spec",
        "spec": "podSelector policyTypes ingress",
    },
    "JobSet": {
        "": "apiVersion kind metadata spec",
        "spec": "network failurePolicy replicatedJobs",
        "spec.network": "enableDNSHostnames publishNotReadyAddresses subdomain",
        "spec.failurePolicy": "maxRestarts rules",
        "spec.failurePolicy.rules.0": "name action onJobFailureReasons targetReplicatedJobs",
        "spec.replicatedJobs.0": "name replicas template",
        "spec.replicatedJobs.0.template": "metadata spec",
        "spec.replicatedJobs.0.template.spec": "completions parallelism completionMode backoffLimit podFailurePolicy template",
        "spec.replicatedJobs.0.template.spec.podFailurePolicy.rules.0": "action onExitCodes onPodConditions",
        "spec.replicatedJobs.0.template.spec.podFailurePolicy.rules.0.onExitCodes": "containerName operator values",
        "spec.replicatedJobs.0.template.spec.template.spec": "restartPolicy terminationGracePeriodSeconds containers volumes subdomain",
        "spec.replicatedJobs.0.template.spec.template.spec.containers.0": "name image command args env volumeMounts resources",
    },
}


@pytest.fixture(scope="module")
def documents():
    manifests = {
        document["kind"]: document for document in parse_yaml((FOLDER / "jobset.yaml").read_text())
    }
    assert list(manifests) == ["Secret", "NetworkPolicy", "JobSet"]
    return manifests


def at(value, path):
    for step in filter(None, path.split(".")):
        value = value[int(step) if step.isdecimal() else step]
    return value


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in FIELDS.items() for path in paths]
)
def test_fields_of_kubernetes_exist(kind, path, documents):
    assert set(at(documents[kind], path)) <= set(FIELDS[kind][path].split())


def test_the_parser_agrees_with_another(documents):
    yaml = pytest.importorskip("yaml")
    assert list(yaml.safe_load_all((FOLDER / "jobset.yaml").read_text())) == list(
        documents.values()
    )


def test_parts_of_the_jobset_fit_each_other(documents, monkeypatch):
    spec = documents["JobSet"]["spec"]
    job = at(spec, "replicatedJobs.0.template.spec")
    container = at(job, "template.spec.containers.0")
    environment = {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}
    assert (
        job["completions"] == job["parallelism"] == int(environment["WEFT_NUM_PROCESSES"])
        and job["completionMode"] == "Indexed"
    )
    reference = environment["WEFT_JOB_SECRET"]["secretKeyRef"]
    assert (
        reference["name"] == documents["Secret"]["metadata"]["name"]
        and reference["key"] in documents["Secret"]["stringData"]
    )
    rule = at(job, "podFailurePolicy.rules.0.onExitCodes")
    assert (
        rule["values"] == [launchers.PREEMPTED]
        and rule["containerName"] == container["name"]
        and job["backoffLimit"] == 0
    )
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in at(job, "template.spec.volumes")}
    assert spec["network"]["subdomain"] == documents["JobSet"]["metadata"]["name"]


def test_the_example_secret_must_be_replaced(documents):
    with pytest.raises(ValueError, match="must have at least 16"):
        job_secret.find_secret(documents["Secret"]["stringData"])


def test_pods_find_the_coordinator(documents, monkeypatch):
    """A pod of a JobSet is called JOBSET-JOB-0-INDEX, in the domain of its subdomain."""
    jobset = documents["JobSet"]
    name = f"{jobset['metadata']['name']}-{at(jobset, 'spec.replicatedJobs.0.name')}-0"
    domain = f"{at(jobset, 'spec.network.subdomain')}.default.svc.cluster.local"
    for variable, value in {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "JOB_COMPLETION_INDEX": "3",
        "WEFT_NUM_PROCESSES": "4",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("socket.gethostname", lambda: f"{name}-3")
    monkeypatch.setattr("socket.getfqdn", lambda: f"{name}-3.{domain}")
    environment = launchers.detect_environment("k8s")
    assert (environment.address, environment.size, environment.rank) == (
        f"{name}-0.{domain}:55527",
        4,
        3,
    )


SCRIPTS = sorted(path.name for path in FOLDER.glob("*.slurm"))
OPTIONS = set(
    "job-name nodes ntasks-per-node cpus-per-task time signal requeue open-mode output no-kill".split()
)


def test_there_are_batch_files():
    assert SCRIPTS == ["elastic.slurm", "train.slurm"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_batch_files_are_shell_and_their_options_exist(name):
    text = (FOLDER / name).read_text()
    subprocess.run(["bash", "-n", FOLDER / name], check=True)
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE)
    assert len(options) == text.count("#SBATCH") and {option for option, _ in options} <= OPTIONS
    first_command = re.search(r"^[^#\n]", text, re.MULTILINE).start()
    assert "#SBATCH" not in text[first_command:]  # sbatch reads none after the first command
    assert not re.search(r"(srun|python).*SECRET", text.split("secrets.token_hex")[-1])


@pytest.mark.parametrize("name", SCRIPTS)
def test_commands_of_batch_files_are_accepted(name):
    line = next(
        line
        for line in (FOLDER / name).read_text().splitlines()
        if " -m weft " in line and not line.startswith("#")
    )
    words = (
        line.split(" -m weft ", 1)[1]
        .replace('"sh $reach"', "reach")
        .replace('"$SLURM_JOB_NODELIST:4"', "n[1-4]:4")
        .split()
    )
    options = parse(words)
    assert options.program == "train.py" and options.arguments == []
    if name == "elastic.slurm":
        assert options.processes == 16 and options.least == 8


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="there is no sbatch")
@pytest.mark.parametrize("name", SCRIPTS)
def test_sbatch_reads_the_options(name, tmp_path):
    """Without a cluster sbatch stops after it has read them."""
    done = subprocess.run(
        ["sbatch", "--test-only", FOLDER / name],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "unrecognized option" not in done.stderr and "Invalid" not in done.stderr, done.stderr


def test_the_page_names_the_files():
    page = PAGE.read_text()
    for path in FOLDER.iterdir():
        assert f"examples/cluster/{path.name}" in page
