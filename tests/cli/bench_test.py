#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spdkfac bench`: the experiments simulated, emulated and measured under mpirun, and their records."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SPDKFAC"]
MPIRUN = [os.environ.get("MPIRUN", ""), *os.environ.get("MPIRUN_FLAGS", "").split(), "-n", "2"]
RUN_EXPERIMENTS = ("iteration", "breakdown", "pipelining", "placement", "ablation", "scaling")
SMALL = ["--model", "cnn28", "--width", "0.25", "--batch", "4", "--threads", "1", "--steps", "3",
         "--profile-steps", "1"]
USAGE_MISTAKE = 2


class BenchTestCase(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_command(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder)}
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, env=environment,
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def bench(self, *arguments: str, launcher: list[str] | None = None) -> tuple[dict, str]:
        """The record and what was printed."""
        done = self.run_command(*(launcher or []), PROGRAM, "bench", *arguments, "--out", "r.json")
        return json.loads((self.folder / "r.json").read_text(encoding="utf-8")), done.stdout

    def assert_adds_up(self, times: dict, iteration: float, places: int = 9) -> None:
        self.assertAlmostEqual(sum(times["breakdown"].values()), iteration, places=places)

    def assert_mistake(self, arguments: list[str], message: str) -> None:
        done = self.run_command(PROGRAM, "bench", *arguments, code=USAGE_MISTAKE)
        self.assertIn(message, done.stderr)


class SimulatedTest(BenchTestCase):
    def test_every_experiment_gives_a_record_of_every_model(self) -> None:
        for experiment in RUN_EXPERIMENTS:
            record, text = self.bench(experiment, "--simulate")
            self.assertEqual((record["format"], record["experiment"], record["mode"]),
                             ("spdkfac.record/1", experiment, "simulated"))
            self.assertEqual({run["model"] for run in record["runs"]},
                             {"resnet50", "resnet152", "densenet201", "inception-v4"})
            for run in record["runs"]:
                self.assertIsNone(run["measured"])
                self.assertIsNone(run["replay"])
                self.assert_adds_up(run["forecast"], run["forecast"]["iteration"])
                self.assertIn(run["label"], text)

    def test_the_times_of_the_paper_stand_beside_the_simulated(self) -> None:
        record, _ = self.bench("iteration", "--simulate", "--model", "resnet50")
        papers = {run["algorithm"]: run["paper"] for run in record["runs"]}
        self.assertEqual(papers["d-kfac"], 0.8525)
        self.assertEqual(papers["spd-kfac"], 0.6755)
        self.assertIsNone(papers["auto"])
        # On another number of ranks the paper has none.
        record, _ = self.bench("iteration", "--simulate", "--model", "resnet50", "--world", "32")
        self.assertTrue(all(run["paper"] is None for run in record["runs"]))

    def test_simulations_are_those_of_simulate(self) -> None:
        record, _ = self.bench("iteration", "--simulate", "--model", "resnet152", "--algorithm",
                               "mpd-kfac")
        done = self.run_command(PROGRAM, "simulate", "--model", "resnet152", "--cluster",
                                "paper-64x2080ti", "--algorithm", "mpd-kfac", "--json")
        self.assertEqual(len(record["runs"]), 1)
        self.assertEqual(record["runs"][0]["forecast"]["iteration"],
                         json.loads(done.stdout)[0]["iteration_seconds"])

    def test_breakdown_also_shows_one_worker(self) -> None:
        record, _ = self.bench("breakdown", "--simulate", "--model", "resnet50")
        self.assertEqual([(run["label"], run["world"]) for run in record["runs"]][:4],
                         [("SGD", 1), ("KFAC", 1), ("S-SGD", 64), ("D-KFAC", 64)])
        self.assertEqual(record["runs"][1]["forecast"]["breakdown"]["factor_comm"], 0)

    def test_scaling_goes_from_one_to_1024_workers(self) -> None:
        record, _ = self.bench("scaling", "--simulate", "--model", "resnet50")
        self.assertEqual(sorted({run["world"] for run in record["runs"]}),
                         [2**power for power in range(11)])
        alone = next(run for run in record["runs"] if run["world"] == 1)
        self.assertEqual(alone["forecast"]["sent_bytes"], 0)

    def test_placement_tells_who_owns_what(self) -> None:
        record, _ = self.bench("placement", "--simulate", "--model", "resnet50")
        by_label = {run["label"]: run for run in record["runs"]}
        self.assertEqual(list(by_label), ["Non-Dist", "Seq-Dist", "LBP", "lpt"])
        self.assertTrue(all(one["owner"] is None for one in by_label["Non-Dist"]["owners"]))
        self.assertTrue(all(one["owner"] is not None for one in by_label["Seq-Dist"]["owners"]))
        self.assertEqual(len(by_label["LBP"]["owners"]), 108)
        self.assertEqual(len(by_label["LBP"]["forecast"]["inverse_loads"]), 64)

    def test_another_width_is_described_first(self) -> None:
        record, _ = self.bench("iteration", "--simulate", "--model", "resnet20", "--width", "0.5",
                               "--cluster", "ethernet-10g-16", "--record-events")
        self.assertEqual(record["runs"][0]["model"], "resnet20")
        ranks = {event[0] for event in record["traces"][1]["forecast"]}
        self.assertEqual(ranks, set(range(8)))  # of 16 the first ones

    def test_fits_of_a_cluster_file(self) -> None:
        record, _ = self.bench("inverse", "--simulate")
        inverse, broadcast = record["curves"]
        self.assertEqual((inverse["name"], broadcast["name"]), ("inverse", "broadcast"))
        # The paper's constants: 3.64e-3 s·e^{…d} has no zero, so small inverses are not free.
        at = dict((point[0], point[1]) for point in inverse["fits"][0]["curve"])
        sent = dict((point[0], point[1]) for point in broadcast["fits"][0]["curve"])
        limit = record["threshold"]
        self.assertTrue(all((at[dim] < sent[dim]) == (dim <= limit) for dim in at))
        record, _ = self.bench("comm", "--simulate")
        self.assertEqual([curve["name"] for curve in record["curves"]],
                         ["all_reduce", "reduce", "broadcast"])

    def test_models_are_those_of_the_paper(self) -> None:
        record, _ = self.bench("models")
        for model in record["models"]:
            self.assertEqual(model["layers"], model["paper"]["layers"])
            self.assertEqual(len(model["dims_a"]), model["layers"])
            self.assertEqual(sum(d * (d + 1) // 2 for d in model["dims_a"]), model["a_elements"])
            self.assertLess(abs(model["a_elements"] / model["paper"]["a_elements"] - 1), 0.001)

    def test_mistakes_are_told(self) -> None:
        self.assert_mistake(["iteration"], "needs several ranks; start the program with mpirun")
        self.assert_mistake(["comm"], "needs several ranks; start the program with mpirun")
        self.assert_mistake(["iteration", "--world", "4"], "--world needs --simulate")
        self.assert_mistake(["iteration", "--simulate", "--steps", "3"],
                            "--steps and --simulate cannot be combined")
        self.assert_mistake(["memory", "--simulate"], "remove --simulate")
        self.assert_mistake(["iteration", "--simulate", "--model", "alexnet"], "alexnet")
        self.assert_mistake(["iteration", "--simulate", "--algorithm", "magic"], "magic")
        self.assert_mistake(["ablation", "--simulate", "--cluster", "moon"], "moon")


class EmulatedTest(BenchTestCase):
    def test_one_process_stands_for_one_of_many_ranks(self) -> None:
        record, text = self.bench("iteration", "--emulate", "8", *SMALL, "--record-events", "--algorithm",
                                  "d-kfac", "--algorithm", "spd-kfac", "--algorithm",
                                  "owner-blocks", "--algorithm", "sgd")
        self.assertEqual(record["mode"], "emulated")
        self.assertIn("one process does the work of one of 8 ranks", text)
        for run in record["runs"]:
            self.assertEqual(run["world"], 8)
            self.assertGreater(run["forecast"]["iteration"], 0)
            self.assertEqual(len(run["measured"]["samples"]), 3)
            # Bytes are counted as on real ranks.
            self.assertAlmostEqual(run["measured"]["sent_bytes"], run["replay"]["sent_bytes"],
                                   delta=1)
        for traces in record["traces"]:
            self.assertEqual(len({event[0] for event in traces["measured"]}), 1)

    def test_messages_take_the_time_of_the_network(self) -> None:
        cluster = self.run_command(PROGRAM, "clusters", "--json", "ethernet-10g-16")
        document = json.loads(cluster.stdout)
        for cost in document["collectives"].values():
            cost.clear()
            cost.update({"alpha": 0.02, "beta": 0.0})
        (self.folder / "slow.json").write_text(json.dumps(document), encoding="utf-8")
        record, _ = self.bench("iteration", "--emulate", "16", *SMALL, "--cluster-file",
                               "slow.json", "--algorithm", "lw-none", "--record-events")
        messages = [event for event in record["traces"][0]["measured"] if event[1] == "channel"]
        self.assertGreater(len(messages), 8)
        for event in messages:
            self.assertAlmostEqual(event[5], 0.02, places=4)


class StepTest(BenchTestCase):
    def test_sgd_stands_beside_kfac(self) -> None:
        record, text = self.bench("step", "--model", "cnn28", "--width", "0.25", "--batch", "4",
                                  "--threads", "1", "--steps", "3", "--warmup", "1")
        self.assertEqual((record["format"], record["experiment"]), ("spdkfac.record/1", "step"))
        self.assertEqual({name: len(seconds) for name, seconds in record["seconds"].items()},
                         {"sgd": 3, "capture": 3, "kfac": 3, "kfac traced": 3})
        self.assertEqual(set(record["calls_alone_ms"]),
                         {"factor_comp", "inverse_comp", "precondition"})
        self.assertIn("x sgd", text)
        self.run_command(PROGRAM, "report", "r.json", "--out", "page.html")
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn("A K-FAC step takes", page)

    def test_graphs_need_a_gpu(self) -> None:
        self.assert_mistake(["step", "--graphs"],
                            "bench step: --graphs needs a GPU; add --device cuda")


class ReportTest(BenchTestCase):
    def test_a_record_becomes_a_page(self) -> None:
        self.bench("iteration", "--simulate", "--record-events", "--model", "resnet50")
        self.run_command(PROGRAM, "report", "r.json", "--out", "page.html", "--title", "A <title>")
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn("A &lt;title&gt;", page)
        self.assertIn("SPD-KFAC", page)

    def test_what_is_no_record_is_a_mistake(self) -> None:
        (self.folder / "other.json").write_text("{}", encoding="utf-8")
        done = self.run_command(PROGRAM, "report", "other.json", "--out", "p.html",
                                code=USAGE_MISTAKE)
        self.assertIn("other.json", done.stderr)
        self.assertFalse((self.folder / "p.html").exists())


@unittest.skipUnless(MPIRUN[0], "this build has no MPI")
class MeasuredTest(BenchTestCase):
    def test_ranks_are_measured_replayed_and_forecast(self) -> None:
        record, text = self.bench("iteration", *SMALL, "--record-events", "--trace", "trace.json",
                                  launcher=MPIRUN)
        self.assertEqual((record["mode"], record["options"]["settings"][0]["batch"]),
                         ("measured", 4))
        self.assertIn("95 % interval", text)
        for run in record["runs"]:
            self.assertEqual((run["world"], len(run["measured"]["samples"])), (2, 3))
            self.assertAlmostEqual(run["measured"]["sent_bytes"], run["replay"]["sent_bytes"],
                                   delta=1)
            self.assertLessEqual(run["measured"]["low"], run["measured"]["median"])
            self.assertGreater(run["forecast"]["iteration"], 0)
            # Other algorithms choose what to broadcast by costs, and the forecast has others.
            if run["algorithm"] in ("sgd", "d-kfac"):
                self.assertAlmostEqual(run["forecast"]["sent_bytes"],
                                       run["measured"]["sent_bytes"], delta=1)
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {0, 1})

    # A collective ends on no rank before it has begun on the other: clocks are aligned.
    def test_messages_of_ranks_meet(self) -> None:
        record, _ = self.bench("breakdown", *SMALL, "--record-events", "--algorithm", "d-kfac",
                               launcher=MPIRUN)
        by_rank: tuple[list, list] = ([], [])
        for rank, lane, category, name, start, duration, *_ in record["traces"][0]["measured"]:
            if lane == "channel" and category == "factor_comm":
                by_rank[rank].append((name, start, start + duration))
        self.assertGreater(len(by_rank[0]), 0)
        self.assertEqual([one[0] for one in by_rank[0]], [one[0] for one in by_rank[1]])
        for (_, begin0, end0), (_, begin1, end1) in zip(*by_rank, strict=True):
            self.assertLess(begin0, end1)
            self.assertLess(begin1, end0)

    def test_memory_is_that_of_each_rank(self) -> None:
        record, text = self.bench("memory", *SMALL, launcher=MPIRUN)
        self.assertEqual(record["experiment"], "memory")
        by_label = {one["label"]: one["ranks"] for one in record["memory"]}
        everyone = by_label["D-KFAC"]
        self.assertEqual(len(everyone), 2)
        self.assertEqual(everyone[0]["factors"], everyone[1]["factors"])
        # What only owners keep is less on each of them, and as much together.
        blocks = by_label["owner-blocks"]
        self.assertEqual(sum(one["factors"] for one in blocks), everyone[0]["factors"])
        self.assertIn("together MB", text)

    def test_collectives_are_fitted(self) -> None:
        record, _ = self.bench("comm", "--max-elements", "16384", "--repetitions", "2", "--threads",
                               "1", launcher=MPIRUN)
        for curve in record["curves"]:
            self.assertEqual(curve["points"][0][0], 1024)
            self.assertEqual({fit["form"] for fit in curve["fits"]}, {"affine", "table"})


if __name__ == "__main__":
    unittest.main()
