// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/cli/calibration_text.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/on_ranks.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::cli {
namespace {

// The largest messages on a slow link, and ranks that wait for the last one's largest inversion.
constexpr std::int64_t kPatienceSeconds = 600;

struct CalibrateFlags {
  std::string out;
  std::optional<std::string> name;
  std::optional<std::int64_t> max_elements;
  std::optional<std::int64_t> max_dim;
  std::optional<int> repetitions;
  std::string device = "cpu";
  std::string backend = "mpi";
  int threads = 0;  // 0: torch's choice
  bool quick = false;
  bool json = false;
};

calibrate::CalibrationOptions calibration_options(const CalibrateFlags& flags, c10::Device device) {
  calibrate::CalibrationOptions options =
      flags.quick ? calibrate::quick_sizes(device) : calibrate::full_calibration(device);
  if (flags.max_elements) options.max_elements = *flags.max_elements;
  if (flags.max_dim) options.max_dim = *flags.max_dim;
  if (flags.repetitions) options.repetitions = *flags.repetitions;
  options.name = flags.name.value_or(std::filesystem::path(flags.out).stem().string());
  try {
    const Json name = options.name;
    static_cast<void>(name.dump());
    parse_name(JsonValue(name, "flags", "--name"));
  } catch (const Json::exception&) {
    throw ConfigError("flags: --name: the name is not valid UTF-8; use another one");
  }
  return options;
}

// A file that cannot be written is better known before the measurement than after it.
std::string problem_with_out(const std::filesystem::path& out) {
  std::error_code ignored;
  const auto status = std::filesystem::status(out, ignored);
  if (std::filesystem::is_directory(status)) {
    return fmt::format("flags: --out {}: is a directory; give the path of a file", out.string());
  }
  const auto folder = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  const bool in_place =
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (::access(in_place ? out.c_str() : folder.c_str(), W_OK) == 0) return "";
  return fmt::format(
      "flags: --out {}: cannot be written ({}); check the folder and its permissions", out.string(),
      std::strerror(errno));
}

// The bar and the estimate, on rank 0.
class Display {
 public:
  calibrate::CalibrationObserver observer() {
    return {.begin =
                [this](Seconds estimate, std::size_t samples) {
                  fmt::print(stderr, "calibrate: this will take about {}\n",
                             duration_text(estimate));
                  progress_.emplace("calibrating", samples);
                },
            .advance = [this] { progress_->advance(); }};
  }
  void end() { progress_.reset(); }

 private:
  std::optional<Progress> progress_;
};

void run_calibration(const CalibrateFlags& flags) {
  const c10::Device device = train::find_device(flags.device);
  const calibrate::CalibrationOptions options = calibration_options(flags, device);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  train::RankOptions rank_options;
  rank_options.backend = flags.backend;
  rank_options.timeout_seconds = kPatienceSeconds;
  const train::Ranks ranks(rank_options, device);
  const bool first = ranks.first();
  // All ranks stop for what rank 0 has found; it alone says so, and ends the job.
  const std::string problem = ranks.from_first(first ? problem_with_out(flags.out) : "");
  if (!problem.empty() && first) throw ConfigError(problem);
  if (!problem.empty()) return;

  Display display;
  const calibrate::Calibration calibration =
      calibrate::calibrate(*ranks.communicator(), device, options,
                           first ? display.observer() : calibrate::CalibrationObserver{});
  display.end();
  if (!first) return;
  write_file_atomically(flags.out, calibration.text);
  if (flags.json) {
    print_json(to_json(calibration));
  } else {
    print(to_text(calibration) + fmt::format("\n{}: written\n", flags.out));
  }
}

}  // namespace

void add_calibrate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("calibrate", kCalibrateHelp);
  const auto flags = std::make_shared<CalibrateFlags>();
  verb->add_option("--out", flags->out, "Write the cluster file here")
      ->type_name("FILE")
      ->required()
      ->check([](const std::string& text) { return text.empty() ? "is empty" : ""; });
  verb->add_option("--name", flags->name, "Name of the cluster (default: the file's name)")
      ->type_name("NAME");
  auto* elements = verb->add_option("--max-elements", flags->max_elements,
                                    "Largest message in elements (default 67108864)")
                       ->type_name("N");
  elements->check(count(4096, std::int64_t{1} << 31));
  auto* dim = verb->add_option("--max-dim", flags->max_dim,
                               "Largest dimension to invert (default 2048, 8192 on a GPU)")
                  ->type_name("N");
  dim->check(count(256, 32768));
  auto* repetitions =
      verb->add_option("--repetitions", flags->repetitions, "Samples per measurement (default 10)")
          ->type_name("N");
  repetitions->check(count(1, 10'000));
  verb->add_option("--device", flags->device, "cpu (default) or cuda")
      ->type_name("NAME")
      ->check(one_of({"cpu", "cuda"}));
  verb->add_option("--backend", flags->backend, "mpi (default) or nccl (one GPU per rank)")
      ->type_name("NAME")
      ->check(one_of({"mpi", "nccl"}));
  verb->add_option("--threads", flags->threads, "CPU threads per rank (default: torch's)")
      ->type_name("N")
      ->check(count(1, 4096));
  verb->add_flag("--quick", flags->quick, "Measure only a few sizes, in a few seconds")
      ->excludes(elements)
      ->excludes(dim)
      ->excludes(repetitions);
  verb->add_flag("--json", flags->json, "Print measurements and fits as JSON");
  verb->footer("Example: mpirun -n 4 spdkfac calibrate --out cluster.json");
  verb->callback([flags] { run_on_ranks([&] { run_calibration(*flags); }); });
}

}  // namespace spdkfac::cli
