# SPDX-License-Identifier: Apache-2.0
"""The rows of bad_input_test.py: a name, what is damaged, and the message that the program owes."""

from __future__ import annotations

import copy
import json
from typing import Any, Callable, NamedTuple

BUNDLED = ["--model", "resnet50", "--cluster", "paper-64x2080ti"]
FILES = ["--model-file", "model.json", "--cluster-file", "cluster.json"]

MODEL: dict[str, Any] = {
    "format": "spdkfac.model/1", "name": "tiny", "batch": 2, "input": [3, 8, 8], "parameters": 164,
    "layers": [
        {"name": "conv", "kind": "conv2d", "d_a": 9, "d_g": 4, "bias": False, "positions": 36,
         "gradients": [36, 4, 4],
         "flops": {"forward": 2600, "factor_a": 2900, "factor_g": 1100}},
        {"name": "fc", "kind": "linear", "d_a": 12, "d_g": 10, "bias": True, "positions": 1,
         "gradients": [110, 10], "flops": {"forward": 240, "factor_a": 144, "factor_g": 100}}]}
CLUSTER: dict[str, Any] = {
    "format": "spdkfac.cluster/1", "name": "pair", "world": 2, "source": "made up",
    "collectives": {"all_reduce": {"alpha": 1e-5, "beta": 2e-9},
                    "reduce": {"alpha": 1e-5, "beta": 1e-9},
                    "broadcast": {"alpha": 1e-5, "beta": 1e-9}},
    "inverse": {"kind": "cubic", "c0": 1e-4, "c1": 0, "c2": 0, "c3": 1e-9},
    "compute": {"forward": 1e9, "factor": 1e9, "precondition": 1e9}}

# Works on a copy of a valid document; a str instead is the whole text of the file.
Change = Callable[[Any], None]


class Case(NamedTuple):
    name: str
    change: Change | str
    message: str  # behind "spdkfac: FILE: "
    algorithm: str = "spd-kfac"  # whose plan is damaged


class FlagCase(NamedTuple):
    name: str
    arguments: list[str]
    message: str  # behind "spdkfac: "


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def put(*path_and_value: Any) -> Change:
    *path, key, value = path_and_value
    def change(document: Any) -> None:
        at(document, tuple(path))[key] = copy.deepcopy(value)
    return change


def drop(*path: str | int) -> Change:
    def change(document: Any) -> None:
        del at(document, path[:-1])[path[-1]]
    return change


def rename(*path_and_key: str | int) -> Change:
    *path, old, new = path_and_key
    def change(document: Any) -> None:
        parent = at(document, tuple(path))
        parent[new] = parent.pop(old)
    return change


def both(*changes: Change) -> Change:
    def change(document: Any) -> None:
        for one in changes:
            one(document)
    return change


ADVICE = "check the commas, quotes and brackets around it"
LAYER_FIELDS = ("known fields are bias, blocks_a, blocks_g, d_a, d_g, flops, gradients, groups, kind, name, "
                "positions, times")
VALID = json.dumps(MODEL)
RANGE = "an integer from 1 to 1000000"
SIZE = "an integer from 1 to 1000000000000"

MODEL_CASES = [
    # The text
    Case("empty", "", "the file is empty; check that it was written completely"),
    Case("blank", " \n", "line 1, column 1: the text is empty; write one JSON value"),
    Case("truncated", VALID[:100],
         "line 1, column 101: the text ends too early; check that it is complete"),
    Case("text behind the end", VALID + "\n{}",
         "line 2, column 1: text after the end of the document; remove it"),
    Case("comment", '{ // tiny\n"format": 1}',
         "line 1, column 3: comments are not allowed; remove them"),
    Case("trailing comma", '{"format": "x",\n}', "line 1, column 15: trailing comma; remove it"),
    Case("single quotes", "{'format': 1}",
         "line 1, column 2: expected a key; write it in double quotes"),
    Case("no comma", '{"name": "x" "batch": 2}', f"line 1, column 14: unexpected string; {ADVICE}"),
    Case("zero byte", '{"name": "\0"}',
         "line 1, column 11: zero byte; check that this is a JSON text"),
    Case("line break in a string", '{"name": "a\nb"}',
         "line 1, column 12: line break or control character inside a string; escape it as in \\n"),
    Case("deep nesting", "[" * 100_000,
         "line 1, column 65: nested deeper than 64 levels; make it flatter"),
    Case("duplicate key", '{"format": "spdkfac.model/1",\n "batch": 1, "batch": 2}',
         'line 2, column 14: duplicate key "batch" in the top-level object; remove one of them'),
    Case("NaN", '{"format": "spdkfac.model/1", "batch": NaN}',
         "line 1, column 40: NaN is not a JSON number; write a finite number"),
    Case("infinity", '{"format": "spdkfac.model/1", "batch": -Infinity}',
         "line 1, column 40: -Infinity is not a JSON number; write a finite number"),
    Case("1e999", '{"format": "spdkfac.model/1", "batch": 1e999}',
         'line 1, column 40: number "1e999" is out of range; numbers are 64-bit floats'),
    # Fields
    Case("not an object", "[]", "expected an object (got an array)"),
    Case("no format", drop("format"), 'missing field "format"; add it'),
    Case("other format", put("format", "spdkfac.cluster/1"),
         'format: expected "spdkfac.model/1" (got "spdkfac.cluster/1")'),
    Case("format of a later version", put("format", "spdkfac.model/2"),
         'format: expected "spdkfac.model/1" (got "spdkfac.model/2")'),
    Case("no name", drop("name"), 'missing field "name"; add it'),
    Case("empty name", put("name", ""), 'name: expected a non-empty string (got "")'),
    Case("line break in the name", put("name", "a\nb"),
         "name: line break or control character in a name; remove it"),
    Case("name is a number", put("name", 5), "name: expected a non-empty string (got 5)"),
    Case("batch 0", put("batch", 0), f"batch: expected {SIZE} (got 0)"),
    Case("batch is a string", put("batch", "2"), f'batch: expected {SIZE} (got "2")'),
    Case("batch is null", put("batch", None), f"batch: expected {SIZE} (got null)"),
    Case("input is a number", put("input", 3), "input: expected an array (got 3)"),
    Case("input size 0", put("input", 1, 0), f"input[1]: expected {SIZE} (got 0)"),
    Case("parameters too many", put("parameters", 10**19),
         f"parameters: expected {SIZE} (got {10**19})"),
    Case("parameters do not add up", put("parameters", 165),
         "parameters: the gradients of all layers add up to 164 elements (got 165); correct one "
         "of them"),
    Case("unknown field", put("coffee", 1),
         'unknown field "coffee"; known fields are batch, format, input, layers, name, parameters'),
    Case("misspelt field", put("layer", []), 'unknown field "layer"; did you mean "layers"?'),
    Case("layers is an object", put("layers", {}), "layers: expected an array (got an object)"),
    Case("no layers", put("layers", []), "layers: expected at least one layer (got none)"),
    Case("layer is a string", put("layers", 1, "fc"), 'layers[1]: expected an object (got "fc")'),
    Case("layer without d_a", drop("layers", 0, "d_a"), 'layers[0]: missing field "d_a"; add it'),
    Case("layer with an unknown field", put("layers", 1, "coffee", 1),
         f'layers[1]: unknown field "coffee"; {LAYER_FIELDS}'),
    Case("layer with a misspelt field", put("layers", 1, "gradient", []),
         'layers[1]: unknown field "gradient"; did you mean "gradients"?'),
    Case("layer of another kind", put("layers", 0, "kind", "conv4d"),
         'layers[0].kind: expected one of "conv2d", "linear", "conv1d", "conv3d", "conv_transpose1d", '
         '"conv_transpose2d", "conv_transpose3d", "linear_in_out", "embedding", "norm" (got "conv4d")'),
    Case("d_a negative", put("layers", 0, "d_a", -4), f"layers[0].d_a: expected {RANGE} (got -4)"),
    Case("d_a too large", put("layers", 0, "d_a", 1_000_001),
         f"layers[0].d_a: expected {RANGE} (got 1000001)"),
    Case("d_g is a fraction", put("layers", 0, "d_g", 4.5),
         f"layers[0].d_g: expected {RANGE} (got 4.5)"),
    Case("bias is a number", put("layers", 0, "bias", 1),
         "layers[0].bias: expected true or false (got 1)"),
    Case("positions 0", put("layers", 0, "positions", 0),
         f"layers[0].positions: expected {SIZE} (got 0)"),
    Case("gradient of size 0", put("layers", 0, "gradients", 2, 0),
         f"layers[0].gradients[2]: expected {SIZE} (got 0)"),
    Case("no gradient", put("layers", 0, "gradients", []),
         "layers[0].gradients: expected 1 or more sizes for a layer without bias (got 0)"),
    Case("no gradient of the bias", put("layers", 1, "gradients", [120]),
         "layers[1].gradients: expected 2 or more sizes for a layer with bias (got 1)"),
    Case("gradient of another size", put("layers", 0, "gradients", 0, 35),
         "layers[0].gradients: the layer's own gradients must have groups·d_a·d_g = 36 elements (got "
         "35); correct the sizes, groups, d_a or d_g"),
    Case("no groups", put("layers", 0, "groups", 0),
         "layers[0].groups: expected an integer from 1 to 1000000 (got 0)"),
    Case("blocks that are no blocks", put("layers", 0, "blocks_a", 7),
         "layers[0]: a factor of 9 rows has no 7 blocks of one dimension; correct blocks_a"),
    Case("gradients too large together", put("layers", 0, "gradients", [36, 10**12]),
         "layers[0].gradients: the sizes add up to more than 1000000000000; correct them"),
    Case("name twice", put("layers", 1, "name", "conv"),
         'layers[1]: layer name "conv" is used twice; give each layer its own name'),
    Case("neither flops nor times", drop("layers", 1, "flops"),
         'layers[1]: needs "flops" or "times"; add one of them'),
    Case("flops incomplete", drop("layers", 1, "flops", "factor_g"),
         'layers[1].flops: missing field "factor_g"; add it'),
    Case("flops negative", put("layers", 1, "flops", "forward", -1),
         "layers[1].flops.forward: expected a number from 0 to 1e+18 (got -1)"),
    Case("time is a string", put("layers", 1, "times", {"forward": "1 s"}),
         'layers[1].times.forward: expected a number from 0 to 86400 (got "1 s")'),
    Case("time longer than a day", put("layers", 1, "times", {"forward": 1e308}),
         "layers[1].times.forward: expected a number from 0 to 86400 (got 1e+308)"),
]

TABLE = ("collectives", "reduce")
CLUSTER_CASES = [
    Case("model file", VALID, 'format: expected "spdkfac.cluster/1" (got "spdkfac.model/1")'),
    Case("world 0", put("world", 0), "world: expected an integer from 1 to 16384 (got 0)"),
    Case("world too large", put("world", 16385),
         "world: expected an integer from 1 to 16384 (got 16385)"),
    Case("no source", drop("source"), 'missing field "source"; add it'),
    Case("no collectives", drop("collectives"), 'missing field "collectives"; add it'),
    Case("one collective missing", drop("collectives", "reduce"),
         'collectives: missing field "reduce"; add it'),
    Case("misspelt collective", put("collectives", "allreduce", {}),
         'collectives: unknown field "allreduce"; did you mean "all_reduce"?'),
    Case("alpha negative", put("collectives", "reduce", "alpha", -1),
         "collectives.reduce.alpha: expected a number from 0 to 86400 (got -1)"),
    Case("beta too large", put("collectives", "reduce", "beta", 2),
         "collectives.reduce.beta: expected a number from 0 to 1 (got 2)"),
    Case("beta misspelt", rename("collectives", "reduce", "beta", "betta"),
         'collectives.reduce: missing field "beta"; add it'),
    Case("table and alpha", put(*TABLE, "table", [[1, 1]]),
         'collectives.reduce: unknown field "alpha"; known fields are per_tensor, table'),
    Case("table empty", put(*TABLE, {"table": []}),
         "collectives.reduce.table: expected at least one point (got none)"),
    Case("table not sorted", put(*TABLE, {"table": [[8, 1], [4, 2]]}),
         "collectives.reduce.table[1][0]: sizes must increase by at least 1 (got 4 after 8); sort "
         "the points and remove duplicates"),
    Case("table with seconds that decrease", put(*TABLE, {"table": [[4, 2], [8, 1]]}),
         "collectives.reduce.table[1][1]: seconds must not decrease (got 1 after 2); smooth the "
         "measurement"),
    Case("table with sizes too close", put(*TABLE, {"table": [[0, 1], [1e-300, 1]]}),
         "collectives.reduce.table[1][0]: sizes must increase by at least 1 (got 1e-300 after 0); "
         "sort the points and remove duplicates"),
    Case("point with three values", put(*TABLE, {"table": [[4, 2, 1]]}),
         "collectives.reduce.table[0]: expected a pair [size, seconds] (got 3 values)"),
    Case("point is a number", put(*TABLE, {"table": [4]}),
         "collectives.reduce.table[0]: expected an array (got 4)"),
    Case("inverse of another kind", put("inverse", "kind", "cube"),
         'inverse.kind: expected one of "exponential", "power", "cubic", "table" (got "cube")'),
    Case("inverse incomplete", drop("inverse", "c3"), 'inverse: missing field "c3"; add it'),
    Case("inverse grows too fast", put("inverse", {"kind": "exponential", "alpha": 1, "beta": 2}),
         "inverse.beta: expected a number from 0 to 1 (got 2)"),
    Case("inverse table not sorted", put("inverse", {"kind": "table", "points": [[2, 1], [2, 2]]}),
         "inverse.points[1][0]: sizes must increase by at least 1 (got 2 after 2); sort the "
         "points and remove duplicates"),
    Case("rate 0", put("compute", "forward", 0),
         "compute.forward: expected a number from 1 to 1e+24 (got 0)"),
    Case("rate near 0", put("compute", "factor", 1e-308),
         "compute.factor: expected a number from 1 to 1e+24 (got 1e-308)"),
    Case("rate is null", put("compute", "factor", None),
         "compute.factor: expected a number from 1 to 1e+24 (got null)"),
    Case("total without batch", put("models", {"tiny": {"forward_backward": 1, "factors": 1}}),
         'models.tiny: missing field "batch"; add it'),
    Case("overhead negative", put("overheads", {"host_per_tensor": -1}),
         "overheads.host_per_tensor: expected a number from 0 to 86400 (got -1)"),
    Case("arrival is a number", put("overheads", {"unpack_on_arrival": 1}),
         "overheads.unpack_on_arrival: expected true or false (got 1)"),
    Case("compute rate 0", put("overheads", {"compute_rate_under_communication": 0}),
         "overheads.compute_rate_under_communication: expected a number from 0.01 to 1 (got 0)"),
    Case("compute rate above 1", put("overheads", {"compute_rate_under_communication": 1.5}),
         "overheads.compute_rate_under_communication: expected a number from 0.01 to 1 (got 1.5)"),
    Case("message rate 0", put("overheads", {"communication_rate_under_computation": 0}),
         "overheads.communication_rate_under_computation: expected a number from 0.01 to 1 "
         "(got 0)"),
    Case("message rate above 1", put("overheads", {"communication_rate_under_computation": 1.5}),
         "overheads.communication_rate_under_computation: expected a number from 0.01 to 1 "
         "(got 1.5)"),
    Case("other scaling", put("scaling", {"alpha": "square"}),
         'scaling.alpha: expected one of "log", "linear", "constant" (got "square")'),
    Case("nct_below negative", put("nct_below", -1),
         "nct_below: expected an integer from 0 to 1000000000 (got -1)"),
    Case("provenance is a number", put("provenance", {"a b": 1}),
         'provenance["a b"]: expected a string (got 1)'),
]

REMEDY = '; use a cluster with "compute", or a model file with "times"'
NO_TIME = "cluster pair: the time of layer conv of tiny at batch 2 is unknown "
# The file is right in itself; "spdkfac: " stands before these messages.
MISFIT_CASES = [
    Case("no rates and no totals", drop("compute"),
         f"{NO_TIME}(the cluster has no measured totals for tiny and no compute rates){REMEDY}"),
    Case("no rates and totals of another batch",
         both(drop("compute"),
              put("models", {"tiny": {"batch": 8, "forward_backward": 1, "factors": 1}})),
         f"{NO_TIME}(the cluster has measured totals only for batch 8 and no compute "
         f"rates){REMEDY.replace('use ', 'use batch 8, or ')}"),
    Case("of one worker", put("world", 1),
         "cluster pair: its costs are for one rank and cannot be scaled to 2; use a cluster "
         "file measured with at least 2 ranks"),
]

AGAIN = "; make the plan again"
FOR_MODEL = "; make the plan for this model"
RANK = "expected an integer from 0 to 1"
PLAN_CASES = [
    Case("model file", put("format", "spdkfac.model/1"),
         'format: expected "spdkfac.plan/1" (got "spdkfac.model/1")'),
    Case("no options", drop("options"), 'missing field "options"; add it'),
    Case("other step", put("step", "half"),
         'step: expected one of "full", "factors", "gradients" (got "half")'),
    Case("other fusion", put("options", "fusion", "gredy"),
         'options.fusion: expected one of "none", "bucket", "threshold", "greedy", "optimal" (got '
         '"gredy")'),
    Case("options that contradict", put("options", "owners", 2),
         "options: owners=2 makes no sense with placement=balanced; choose placement=blocks, or "
         "drop owners"),
    Case("other model", put("model", "resnet50"),
         "the plan is for model resnet50 (not tiny)" + FOR_MODEL),
    Case("owner outside the world", put("factors", 0, "owner", 2),
         f"factors[0].owner: {RANK} (got 2)"),
    Case("smaller world", put("world", 1),
         "factors[0].owner: expected an integer from 0 to 0 (got 1)"),
    Case("CT without owner", put("factors", 0, "owner", None),
         "factors[0]: a CT needs an owner and an NCT has none (got CT, owner null); correct one "
         "of them"),
    Case("NCT with owner", put("factors", 0, "type", "NCT"),
         "factors[0]: a CT needs an owner and an NCT has none (got NCT, owner 1); correct one of "
         "them"),
    Case("NCT that sends its gradient", put("factors", 0, "exchange", "gradient"),
         "factors[0]: an NCT exchanges nothing (got exchange gradient); write inverse", "d-kfac"),
    Case("other dimension", put("factors", 0, "dim", 10),
         "factors[0]: dimension 10 is not that of layer conv (9)" + FOR_MODEL),
    Case("factor of no layer", put("factors", 0, "layer", 2),
         "factors[0]: layer 2 does not exist (model tiny has 2 layers)" + FOR_MODEL),
    Case("factor twice", lambda d: d["factors"].append(d["factors"][2]),
         "factors[4]: factor A of layer 1 appears twice" + AGAIN),
    Case("factor missing", drop("factors", 0), "factors: factor A of layer 0 is missing" + AGAIN),
    Case("gradient of two owners", put("factors", 1, "owner", 0),
         "factors[1]: layer 0 has owners 1 and 0 but exchanges its gradient; both factors need "
         "one owner", "owner-precondition"),
    Case("factors disagree", put("factors", 1, "exchange", "inverse"),
         "factors: those of layer 0 disagree on what is exchanged" + AGAIN, "owner-precondition"),
    Case("factors of a layer apart", lambda d: d["factors"].insert(0, d["factors"].pop()),
         "factors[3]: both factors of layer 1 must be neighbours, because its gradient is "
         "exchanged" + AGAIN, "owner-precondition"),
    Case("factors of first-order training",
         put("factors", [{"layer": 9, "which": "A", "dim": 9, "type": "NCT", "owner": None,
                          "exchange": "inverse"}]),
         "factors: first-order training has none (got 1)" + AGAIN, "sgd"),
    Case("message without layers", put("messages", 0, "layers", []),
         "messages[0]: expected at least one layer (got none)"),
    Case("message of no layer", put("messages", 0, "layers", 1, 7),
         "messages[0]: layer 7 does not exist (model tiny has 2 layers)" + FOR_MODEL),
    Case("message of a negative layer", put("messages", 0, "layers", 1, -1),
         "messages[0].layers[1]: expected an integer from 0 to 1000000 (got -1)"),
    Case("message of another kind", put("messages", 0, "kind", "loss"),
         'messages[0].kind: expected one of "factor_a", "factor_g", "gradient", "diagonal_means", '
         '"mixed" (got "loss")'),
    Case("message with a layer too few", drop("messages", 0, "layers", 0),
         "messages[0]: its tensors have 78 elements (the plan says 123)" + FOR_MODEL),
    Case("message with other elements", put("messages", 0, "elements", 124),
         "messages[0]: its tensors have 123 elements (the plan says 124)" + FOR_MODEL),
    Case("message with no elements", put("messages", 0, "elements", 0),
         f"messages[0].elements: expected an integer from 1 to {2**50} (got 0)"),
    Case("message missing", drop("messages", 0),
         "messages: factor A of layer 0 is missing" + AGAIN),
    Case("gradient missing", drop("messages", 0),
         "messages: the gradient of layer 1 is missing" + AGAIN, "sgd"),
    Case("tensor twice", put("messages", 0, "layers", [0, 0]),
         "messages[0]: factor A of layer 0 appears twice" + AGAIN),
    Case("factors in a step without", put("step", "gradients"),
         "messages: factor A of layer 0 does not belong to this step" + AGAIN),
    Case("reduce without root", put("messages", 0, "root", None),
         "messages[0]: a reduce needs a root and an all_reduce has none (got reduce, root null); "
         "correct one of them", "owner-reduce"),
    Case("all_reduce with root", put("messages", 0, "root", 1),
         "messages[0]: a reduce needs a root and an all_reduce has none (got all_reduce, root 1); "
         "correct one of them"),
    Case("root outside the world", put("messages", 0, "root", 2),
         f"messages[0].root: {RANK} (got 2)", "owner-reduce"),
    Case("reduce to another", put("messages", 0, "root", 0),
         "messages[0]: factor_a of layer 0 is not sent to where the plan needs it (got reduce to "
         "0, expected reduce to 1)" + AGAIN, "owner-reduce"),
    Case("reduce of what all need",
         both(put("messages", 0, "op", "reduce"), put("messages", 0, "root", 0)),
         "messages[0]: factor_a of layer 0 is not sent to where the plan needs it (got reduce to "
         "0, expected all_reduce)" + AGAIN),
    Case("traces beside a gradient",
         both(put("messages", 6, "kind", "mixed"),
              put("messages", 6, "kinds", ["diagonal_means", "gradient"])),
         "messages[6]: diagonal means travel apart from other tensors" + AGAIN, "owner-reduce"),
    Case("gradient behind factors that wait for it", lambda d: d["messages"].reverse(),
         "messages[2]: in a bulk schedule gradients leave before factors" + AGAIN, "d-kfac"),
    Case("kinds of fewer layers", drop("messages", 0, "kinds", 0),
         'messages[0]: "kinds" has 3 entries and "layers" has 4; give every layer its kind',
         "optimal-fusion"),
    Case("messages of one worker", put("world", 1),
         "messages: one rank sends none (got 2)" + AGAIN, "sgd"),
    Case("prediction negative", put("predicted", "iteration", -1),
         "predicted.iteration: expected a non-negative number (got -1)"),
    Case("prediction incomplete", drop("predicted", "breakdown", "ff_bp"),
         'predicted.breakdown: missing field "ff_bp"; add it'),
]


def conflict(first: str, second: str) -> str:
    return f"flags: {first} and {second} cannot be combined; remove one of them"


def sweep(text: str) -> FlagCase:
    return FlagCase(f"sweep {text}", ["simulate", *BUNDLED, "--sweep-world", text],
                    f"flags: --sweep-world {text} is not FIRST..LAST with 1 ≤ FIRST ≤ LAST ≤ "
                    "16384; for example --sweep-world 1..1024")


def slow(text: str) -> FlagCase:
    return FlagCase(f"slow {text}", ["simulate", *BUNDLED, "--slow", text],
                    f"flags: --slow {text} is not RANK:FACTOR with 0 < FACTOR < 1000000; for "
                    "example --slow 3:1.5")


def slow_rank(text: str) -> FlagCase:
    return FlagCase(f"slow {text}", ["simulate", *BUNDLED, "--slow", text],
                    f"simulate: slow rank {text} does not exist (world=64); use a rank from 0 to "
                    "63 and a factor above 0")


PAPER_MODELS = "densenet201, inception-v4, resnet152, resnet50"
CLUSTERS = "ethernet-10g-16, h200-400g-64, paper-64x2080ti"
OWNERS = "choose placement=balanced, lpt or blocks, so that "
SIZE_IN_BYTES = "a size from 1 byte to 1024 TiB, such as 64MiB, 25MB or 1048576"


def expected(flag: str, value: str, what: str) -> FlagCase:
    return FlagCase(f"{flag} {value}", ["simulate", *BUNDLED, flag, value],
                    f"flags: {flag}: expected {what} (got {value}); see spdkfac simulate --help")


FLAG_CASES = [
    FlagCase("unknown verb", ["simulat", *BUNDLED],
             "flags: spdkfac has no verb simulat; did you mean simulate?"),
    FlagCase("verb like no other", ["coffee", *BUNDLED],
             "flags: spdkfac has no verb coffee; choose one of plan, simulate, advise, models, "
             "clusters, algorithms, report, help, completion, calibrate, describe, train, bench"),
    FlagCase("unknown verb to explain", ["help", "simulat"],
             "flags: spdkfac has no verb simulat; did you mean simulate?"),
    FlagCase("misspelt flag", ["simulate", "--modell", *BUNDLED[1:]],
             "flags: spdkfac simulate has no flag --modell; did you mean --model?"),
    FlagCase("misspelt flag with its value", ["plan", *BUNDLED, "--wrld=4"],
             "flags: spdkfac plan has no flag --wrld; did you mean --world?"),
    FlagCase("misspelt flag that is required", ["report", "a.json", "--uot", "a.html"],
             "flags: spdkfac report has no flag --uot; did you mean --out?"),
    FlagCase("flag like no other", ["plan", *BUNDLED, "--coffee"],
             "flags: spdkfac plan has no flag --coffee; see spdkfac plan --help"),
    FlagCase("word that is not expected", ["plan", *BUNDLED, "coffee"],
             "flags: spdkfac plan does not expect the word coffee; see spdkfac plan --help"),
    FlagCase("flag without value", ["plan", *BUNDLED, "--world"],
             "flags: --world needs a value; see spdkfac plan --help"),
    FlagCase("flag twice", ["plan", *BUNDLED, "--world", "4", "--world", "8"],
             "flags: --world is given more than once; see spdkfac plan --help"),
    expected("--world", "abc", "an integer from 1 to 16384"),
    expected("--world", "16385", "an integer from 1 to 16384"),
    expected("--seed", "-1", "an integer of at least 0"),
    expected("--jitter", "nan", "a number from 0 to 0.99"),
    expected("--fusion", "greeedy", "one of none, bucket, threshold, greedy, optimal"),
    expected("--threshold-bytes", "64XB", SIZE_IN_BYTES),
    expected("--threshold-bytes", "MB", SIZE_IN_BYTES),
    expected("--threshold-bytes", "0KiB", SIZE_IN_BYTES),
    expected("--threshold-bytes", "1025TiB", SIZE_IN_BYTES),
    expected("--threshold-bytes", "9223372036854775807GB", SIZE_IN_BYTES),
    FlagCase("size without a use",
             ["plan", *BUNDLED, "--fusion", "optimal", "--threshold-bytes", "1MB"],
             "flags: --threshold-bytes makes no sense with fusion=optimal, which has no limit; "
             "remove it, or choose another --fusion"),
    FlagCase("compare and algorithm", ["simulate", *BUNDLED, "--compare", "--algorithm", "auto"],
             conflict("--compare", "--algorithm")),
    FlagCase("all methods without compare", ["simulate", *BUNDLED, "--all-methods"],
             "flags: --all-methods needs --compare; add it, or remove --all-methods"),
    FlagCase("local factors for everyone", ["plan", *BUNDLED, "--factor-reduce", "local"],
             "options: factor_reduce=local makes no sense with placement=balanced: each rank would "
             "invert other factors; choose placement=sequential, lpt or blocks, without nct_below"),
    FlagCase("plan and method", ["simulate", *BUNDLED, "--plan", "p.json", "--method", "muon"],
             conflict("--plan", "--method")),
    FlagCase("advice on what is not trained", ["advise", *BUNDLED, "--algorithm", "muon"],
             "options: algorithm muon has method=muon, which is for plans and forecasts only; train "
             "with an algorithm of this library, such as spd-kfac, owner-blocks or auto"),
    FlagCase("wide and json", ["simulate", *BUNDLED, "--wide", "--json"],
             conflict("--wide", "--json")),
    FlagCase("wide and sweep", ["simulate", *BUNDLED, "--wide", "--sweep-world", "1..4"],
             conflict("--wide", "--sweep-world")),
    FlagCase("wide advice as json", ["advise", *BUNDLED, "--wide", "--json"],
             conflict("--json", "--wide")),
    FlagCase("full and json", ["plan", *BUNDLED, "--full", "--json"], conflict("--json", "--full")),
    FlagCase("seed without jitter", ["simulate", *BUNDLED, "--seed", "5"],
             "flags: --seed needs --jitter; add it, or remove --seed"),
    FlagCase("interval without factors",
             ["simulate", *BUNDLED, "--algorithm", "sgd", "--factor-interval", "10"],
             "flags: --factor-interval makes no sense with algorithm=sgd, which has no factors; "
             "remove it, or choose a K-FAC algorithm"),
    FlagCase("kfac on many ranks", ["plan", *BUNDLED, "--algorithm", "kfac"],
             "flags: algorithm=kfac is d-kfac on one rank (got 64 ranks); add --world 1, or choose "
             "d-kfac"),
    FlagCase("kfac on a sweep",
             ["simulate", *BUNDLED, "--algorithm", "kfac", "--sweep-world", "1..4"],
             "flags: algorithm=kfac is d-kfac on one rank (got 4 ranks); add --world 1, or choose "
             "d-kfac"),
    FlagCase("batch that was not measured", ["simulate", *BUNDLED, "--batch", "64"],
             "cluster paper-64x2080ti: the time of layer conv1 of resnet50 at batch 64 is unknown "
             "(the cluster has measured totals only for batch 32 and no compute rates); use batch "
             '32, or a cluster with "compute", or a model file with "times"'),
    FlagCase("no model", ["simulate", "--cluster", "paper-64x2080ti"],
             "flags: no model is given; use --model NAME or --model-file FILE ('spdkfac models' "
             "lists names)"),
    FlagCase("no cluster", ["plan", "--model", "resnet50"],
             "flags: no cluster is given; use --cluster NAME or --cluster-file FILE ('spdkfac "
             "clusters' lists names)"),
    FlagCase("unknown model", ["plan", "--model", "vgg", *BUNDLED[2:]],
             f'models: there is no "vgg"; choose one of {PAPER_MODELS}, or give a file with '
             '--model-file'),
    FlagCase("path as a name", ["plan", "--model", "../models/resnet50", *BUNDLED[2:]],
             f'models: there is no "../models/resnet50"; choose one of {PAPER_MODELS}, or give a '
             'file with --model-file'),
    FlagCase("unknown cluster", ["plan", *BUNDLED[:3], "paper"],
             f'clusters: there is no "paper"; choose one of {CLUSTERS}, or give a file with '
             '--cluster-file'),
    FlagCase("unknown algorithm", ["simulate", *BUNDLED, "--algorithm", "kfca"],
             'algorithm: unknown name "kfca"; did you mean kfac? choose one of auto, sgd, kfac, d-kfac, mpd-kfac, '
             'spd-kfac, pipe, lbp, naive, lw-none, lw-threshold, sp-otf, optimal-fusion, '
             'owner-reduce, owner-precondition, owner-blocks, kaisa-mem, '
             'kaisa-hybrid, kaisa-comm, dp-kfac, shampoo, soap, muon'),
    FlagCase("compare and sweep", ["simulate", *BUNDLED, "--compare", "--sweep-world", "1..4"],
             conflict("--compare", "--sweep-world")),
    FlagCase("json and csv", ["simulate", *BUNDLED, "--json", "--csv"],
             conflict("--json", "--csv")),
    FlagCase("plan and compare", ["simulate", *BUNDLED, "--plan", "p.json", "--compare"],
             conflict("--plan", "--compare")),
    FlagCase("plan and sweep", ["simulate", *BUNDLED, "--plan", "p.json", "--sweep-world", "1..4"],
             conflict("--plan", "--sweep-world")),
    FlagCase("plan and world", ["simulate", *BUNDLED, "--plan", "p.json", "--world", "4"],
             conflict("--plan", "--world")),
    FlagCase("plan and algorithm", ["simulate", *BUNDLED, "--plan", "p.json", "--algorithm", "sgd"],
             conflict("--plan", "--algorithm")),
    FlagCase("plan and owners", ["simulate", *BUNDLED, "--plan", "p.json", "--owners", "2"],
             conflict("--plan", "--owners")),
    FlagCase("sweep and world", ["simulate", *BUNDLED, "--sweep-world", "1..4", "--world", "4"],
             conflict("--sweep-world", "--world")),
    FlagCase("sweep and slow", ["simulate", *BUNDLED, "--sweep-world", "1..4", "--slow", "0:2"],
             conflict("--sweep-world", "--slow")),
    FlagCase("sweep and trace",
             ["simulate", *BUNDLED, "--sweep-world", "1..4", "--trace", "t.json"],
             conflict("--sweep-world", "--trace")),
    FlagCase("plan of two models",
             ["simulate", *BUNDLED, "--model", "resnet152", "--plan", "p.json"],
             "flags: --plan needs one model (got 2); name one"),
    FlagCase("trace of two algorithms",
             ["simulate", *BUNDLED, "--algorithm", "sgd", "--algorithm", "auto", "--trace",
              "t.json"],
             "flags: --trace writes one iteration (got 1 models and 2 algorithms); name one of "
             "each"),
    FlagCase("plan of two algorithms",
             ["plan", *BUNDLED, "--algorithm", "sgd", "--algorithm", "auto"],
             "flags: plan makes one plan (got 1 models and 2 algorithms); name one of each"),
    FlagCase("advice on two models", ["advise", *BUNDLED, "--model", "resnet152"],
             "flags: advise examines one plan (got 2 models and 1 algorithms); name one of each"),
    FlagCase("advice on two algorithms",
             ["advise", *BUNDLED, "--algorithm", "auto", "--algorithm", "spd-kfac"],
             "flags: advise examines one plan (got 1 models and 2 algorithms); name one of each"),
    FlagCase("advice on no model", ["advise", "--cluster", "paper-64x2080ti"],
             "flags: no model is given; use --model NAME or --model-file FILE ('spdkfac models' "
             "lists names)"),
    FlagCase("advice on no cluster", ["advise", "--model", "resnet50"],
             "flags: no cluster is given; use --cluster NAME or --cluster-file FILE ('spdkfac "
             "clusters' lists names)"),
    FlagCase("advice on sgd", ["advise", *BUNDLED, "--algorithm", "sgd"],
             "flags: advise needs K-FAC (got algorithm=sgd, factor_schedule=none); choose a "
             "K-FAC algorithm, or auto"),
    FlagCase("advice on no factors",
             ["advise", *BUNDLED, "--algorithm", "d-kfac", "--factor-schedule", "none"],
             "flags: advise needs K-FAC (got algorithm=d-kfac, factor_schedule=none); choose a "
             "K-FAC algorithm, or auto"),
    FlagCase("advice on auto and a variant", ["advise", *BUNDLED, "--fusion", "optimal"],
             "flags: algorithm=auto chooses the variants itself; remove the other variant flags, "
             "or name the algorithm that they modify"),
    FlagCase("auto and a variant", ["plan", *BUNDLED, "--algorithm", "auto", "--owners", "2"],
             "flags: algorithm=auto chooses the variants itself; remove the other variant flags, "
             "or name the algorithm that they modify"),
    FlagCase("schedule without factors",
             ["plan", *BUNDLED, "--algorithm", "sgd", "--factor-schedule", "bulk"],
             "flags: algorithm=sgd has no factors to schedule as bulk; choose a K-FAC algorithm, "
             "or remove --factor-schedule"),
    FlagCase("placement without factors",
             ["plan", *BUNDLED, "--algorithm", "sgd", "--placement", "lpt"],
             "options: placement=lpt makes no sense with factor_schedule=none; first-order "
             "training inverts nothing, drop the placement"),
    FlagCase("owner without owners",
             ["plan", *BUNDLED, "--algorithm", "d-kfac", "--factor-reduce", "owner"],
             "options: factor_reduce=owner makes no sense with placement=replicated; "
             f"{OWNERS}factors have owners"),
    FlagCase("exchange without owners",
             ["plan", *BUNDLED, "--algorithm", "pipe", "--exchange", "gradient"],
             "options: exchange=gradient makes no sense with placement=replicated; "
             f"{OWNERS}layers have owners"),
    FlagCase("nct_below where all are CTs",
             ["plan", *BUNDLED, "--algorithm", "mpd-kfac", "--replicate-below", "5"],
             "options: nct_below=5 makes no sense with placement=sequential; choose "
             "placement=balanced, lpt or blocks, or drop nct_below"),
    FlagCase("owners of no blocks", ["plan", *BUNDLED, "--owners", "3"],
             "options: owners=3 makes no sense with placement=balanced; choose placement=blocks, "
             "or drop owners"),
    FlagCase("weights of no balance",
             ["plan", *BUNDLED, "--placement", "lpt", "--balance-by", "square"],
             "options: balance_by=square makes no sense with placement=lpt; choose "
             "placement=balanced, or drop balance_by"),
    FlagCase("intervals do not fit",
             ["plan", *BUNDLED, "--factor-interval", "4", "--inverse-interval", "6"],
             "options: inverse_interval=6 is not a multiple of factor_interval=4; new inverses "
             "are made from new factors, choose a multiple"),
    sweep("4"), sweep("0..4"), sweep("8..4"), sweep("1..x"), sweep("1..16385"),
    slow("3"), slow("3:0"), slow("3:1e6"), slow("3:nan"), slow("x:2"),
    slow_rank("64:2"), slow_rank("-1:2"),
]
