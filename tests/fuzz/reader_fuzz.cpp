// SPDX-License-Identifier: Apache-2.0
// Feeds damaged files to the readers, and what they accept to the planners and the simulator.
// Usage: reader_fuzz [--seconds N] [--seed S]. A finding is saved and ends the run with exit
// code 1.
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "fuzz/damage.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/tensor_file.h"
#include "spdkfac/plan/cluster_file.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"
#include "spdkfac/sim/simulator.h"
#include "support/sealed_file.h"
#include "support/temporary_folder.h"

namespace spdkfac::fuzz {
namespace {

constexpr const char* kWhere = "case";  // stands for the file's name
constexpr std::size_t kSmallModel = 8;  // layers; what is larger is read but not planned
constexpr int kLargestWorld = 16;

constexpr const char* kModelText = R"({"format":"spdkfac.model/1","name":"tiny","batch":2,
"input":[3,8,8],"parameters":179,"layers":[
{"name":"conv","kind":"conv2d","d_a":9,"d_g":4,"bias":false,"positions":36,"gradients":[36,4,4],
 "flops":{"forward":1e3,"factor_a":2e3,"factor_g":500}},
{"name":"conv2","kind":"conv2d","d_a":5,"d_g":3,"bias":true,"positions":9,"gradients":[12,3],
 "flops":{"forward":1e3,"factor_a":2e3,"factor_g":500},
 "times":{"forward":1e-3,"backward":2e-3,"factor_a":1e-3,"factor_g":0}},
{"name":"fc","kind":"linear","d_a":12,"d_g":10,"bias":true,"positions":1,"gradients":[110,10],
 "flops":{"forward":240,"factor_a":288,"factor_g":200}}]})";

constexpr std::array<const char*, 3> kClusterTexts = {
    R"({"format":"spdkfac.cluster/1","name":"a","world":4,"source":"","collectives":{
"all_reduce":{"alpha":1e-4,"beta":1e-9,"per_tensor":1e-5},"reduce":{"alpha":1e-4,"beta":1e-9},
"broadcast":{"alpha":1e-4,"beta":1e-9},"all_gather":{"alpha":1e-4,"beta":1e-9}},
"inverse":{"kind":"exponential","alpha":1e-3,"beta":1e-4},
"compute":{"forward":1e9,"factor":1e9,"precondition":1e9},"scaling":{"alpha":"linear"}})",
    R"({"format":"spdkfac.cluster/1","name":"b","world":2,"source":"s","collectives":{
"all_reduce":{"table":[[1,1e-4],[1e3,2e-4],[1e6,1e-2]]},"reduce":{"table":[[1,1e-4],[1e6,1e-2]]},
"broadcast":{"table":[[1,1e-4]],"per_tensor":1e-5},"all_gather":{"alpha":1e-4,"beta":1e-9}},
"inverse":{"kind":"table","points":[[1,1e-5],[64,1e-4],[4096,0.1]]},
"models":{"tiny":{"batch":2,"forward_backward":0.01,"factors":0.02}},
"overheads":{"host_per_tensor":1e-5,"pack_per_element":1e-10,"unpack_per_element":1e-10,
"compute_rate_under_communication":0.5,"unpack_on_arrival":true,
"communication_rate_under_computation":0.75},"nct_below":5,"provenance":{"x":"y"}})",
    R"({"format":"spdkfac.cluster/1","name":"c","world":3,"source":"s","collectives":{
"all_reduce":{"alpha":0,"beta":0},"reduce":{"alpha":0,"beta":0},
"broadcast":{"alpha":1e-3,"beta":1e-6},"all_gather":{"alpha":0,"beta":0}},
"inverse":{"kind":"cubic","c0":1e-4,"c1":0,"c2":1e-9,"c3":1e-10},
"compute":{"forward":1e6,"factor":1e6,"precondition":1e6},
"overheads":{"compute_rate_under_communication":0.25},"scaling":{"alpha":"constant"}})"};

enum class Kind { kModel, kCluster, kPlan, kTensors };
constexpr std::array kKindNames = {"model", "cluster", "plan", "tensors"};

// The header of a checkpoint.
TensorHeader sample_header() {
  return {{{"format", "spdkfac.checkpoint/2"}, {"position", R"({"step":2})"}},
          {{"kfac.fc.a_weight", "F64", {}},
           {"kfac.fc.averaged", "I64", {}},
           {"model.fc.weight", "F32", {3, 4}},
           {"kfac.fc.a_average", "F32", {2, 10}},
           {"random.cpu", "U8", {2, 7}}}};
}

// Not read, read but rejected by the planner or as no plan for its model, used.
enum class Stage { kRejected, kRead, kUsed };

struct Document {
  Kind kind;
  std::string text;
};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void expect_time(Seconds time) {
  expect(std::isfinite(time.value()) && time >= Seconds(0), fmt::format("time {}", time.value()));
}

void expect_one_line(const std::string& message) {
  for (const char c : message) {
    expect(static_cast<unsigned char>(c) >= ' ', "control character in: " + message);
  }
  expect(message.find(": ") != std::string::npos, "no place in: " + message);
}

template <class Parse>
void expect_round_trip(const Json& written, const Parse& parse) {
  const Json again = to_json(parse(parse_json(written.dump(), kWhere), kWhere));
  expect(again == written,
         fmt::format("reads back as {} (written {})", again.dump(), written.dump()));
}

class Fuzzer {
 public:
  Fuzzer() : model_(parse_model(parse_json(kModelText, kWhere), kWhere)) {
    for (const char* text : kClusterTexts) {
      clusters_.push_back(parse_cluster(parse_json(text, kWhere), kWhere));
      documents_.push_back({Kind::kCluster, text});
      for (int i = 0; i < 3; ++i) documents_.push_back({Kind::kModel, kModelText});
    }
    std::size_t i = 0;
    for (const auto* list : {&named_algorithms(), &other_methods()}) {
      for (const AlgorithmInfo& info : *list) {
        const auto step = static_cast<StepKind>(i % 3);
        const int world = static_cast<int>(i % 4) + 1;
        const Plan plan = make_plan(model_, clusters_[i++ % 3], world, info.options, {}, step);
        documents_.push_back({Kind::kPlan, to_json(plan).dump()});
      }
    }
    const TensorHeader header = sample_header();
    for (const TensorSpec& spec : header.tensors) tensor_bytes_ += tensor_bytes(spec);
    for (int copy = 0; copy < 5; ++copy) {
      documents_.push_back({Kind::kTensors, tensor_header_json(header)});
    }
    for (const Kind kind : {Kind::kModel, Kind::kCluster}) {
      const std::string folder = fmt::format(SPDKFAC_SOURCE_DIR "/data/{}s", name(kind));
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        large_documents_.push_back({kind, read_json_file(entry.path()).dump()});
      }
    }
  }

  static const char* name(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
  // Large files say little more than small ones and take long.
  const Document& any(Random& random) const {
    return random.pick(random.one_in(50) ? large_documents_ : documents_);
  }

  // How far the text came; a ConfigError is an answer, anything else escapes.
  Stage run(Kind kind, const std::string& text, Random& random) const {
    Stage stage = Stage::kRejected;
    if (kind == Kind::kTensors) return run_tensors(text, random);
    try {
      const Json document = parse_json(text, kWhere);
      if (kind == Kind::kPlan) {
        const Plan plan = parse_plan(document, kWhere);
        stage = Stage::kRead;
        use_plan(plan, model_, random.pick(clusters_));
      } else if (kind == Kind::kModel) {
        const ModelSpec model = parse_model(document, kWhere);
        stage = Stage::kRead;
        expect_round_trip(to_json(model), parse_model);
        use_costs(model, random.pick(clusters_), random);
      } else {
        const CostModel costs = parse_cluster(document, kWhere);
        stage = Stage::kRead;
        expect_round_trip(to_json(costs), parse_cluster);
        use_costs(model_, costs, random);
      }
      stage = Stage::kUsed;
    } catch (const ConfigError& error) {
      expect_one_line(error.what());
    }
    return stage;
  }

 private:
  // As a header, then as a whole file with the right checksum, or damaged once more.
  Stage run_tensors(const std::string& text, Random& random) const {
    Stage stage = Stage::kRejected;
    try {
      const TensorHeader header = parse_tensor_header(text, tensor_bytes_, kWhere);
      stage = Stage::kRead;
      const TensorHeader again =
          parse_tensor_header(tensor_header_json(header), tensor_bytes_, kWhere);
      expect(again.tensors == header.tensors, "reads back with other tensors");
    } catch (const ConfigError& error) {
      expect_one_line(error.what());
    }
    std::string file = support::sealed_file(text, std::string(tensor_bytes_, 'x'));
    const bool damage = random.one_in(3);
    if (damage && random.one_in(2)) file.resize(random.below(file.size()));
    if (damage) file.insert(random.below(file.size() + 1), 1, 'x');
    folder_.write("file", file);
    try {
      const TensorFileReader reader(folder_ / "file");
      std::string bytes(tensor_bytes_, '\0');
      for (std::size_t i = 0; i < reader.header().tensors.size(); ++i) reader.read(i, bytes.data());
      expect(!damage, "a damaged file was read");
      stage = Stage::kUsed;
    } catch (const ConfigError& error) {
      expect_one_line(error.what());
    } catch (const DamagedFile& error) {
      expect_one_line(error.what());
    }
    return stage;
  }

  void use_plan(const Plan& plan, const ModelSpec& model, const CostModel& costs) const {
    expect_round_trip(to_json(plan), parse_plan);
    validate_against(plan, model, kWhere);
    if (plan.world > kLargestWorld) return;
    const IterationResult simulation = simulate(plan, model, costs);
    expect_time(simulation.iteration);
    for (const Seconds load : simulation.inverse_load) expect_time(load);
    expect(std::isfinite(bytes_per_worker(plan, model)), "bytes_per_worker");
  }

  void use_costs(const ModelSpec& model, const CostModel& costs, Random& random) const {
    if (model.layers.size() > kSmallModel) return;
    PlanOptions options = random.pick(named_algorithms()).options;
    if (random.one_in(50)) options.algorithm = kAutoAlgorithm;
    const int world = static_cast<int>(random.below(5)) + 1;
    const auto step = static_cast<StepKind>(random.below(3));
    const Plan plan = make_best_plan(model, costs, world, options, {}, step);
    use_plan(plan, model, costs);
  }

  support::TemporaryFolder folder_;
  std::uint64_t tensor_bytes_ = 0;
  ModelSpec model_;
  std::vector<CostModel> clusters_;
  std::vector<Document> documents_;
  std::vector<Document> large_documents_;
};

std::string saved_as;      // where a finding goes
std::string current_text;  // what a crash is about

void save_finding() {
  std::ofstream(saved_as, std::ios::binary) << current_text;
  fmt::print(stderr, "reader_fuzz: finding saved in {}\n", saved_as);
}

int run(double seconds, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [start = Clock::now()] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(save_finding);
#endif
  std::signal(SIGABRT, [](int) {  // a failed assertion of the standard library
    save_finding();
    std::_Exit(1);
  });
  const Fuzzer fuzzer;
  std::array<std::array<std::uint64_t, 3>, kKindNames.size()> counts{};
  std::uint64_t cases = 0;
  for (; elapsed() < seconds; ++cases) {
    Random random(seed * 1'000'000'007 + cases);
    const Document& document = fuzzer.any(random);
    current_text = damaged(document.text, fuzzer.any(random).text, random);
    saved_as = (std::filesystem::temp_directory_path() /
                fmt::format("reader_fuzz-{}-{}-{}.json", Fuzzer::name(document.kind), seed, cases))
                   .string();
    try {
      const Stage stage = fuzzer.run(document.kind, current_text, random);
      ++counts[static_cast<std::size_t>(document.kind)][static_cast<std::size_t>(stage)];
    } catch (const std::exception& error) {
      fmt::print(stderr, "reader_fuzz: {} file: {}\n", Fuzzer::name(document.kind), error.what());
      save_finding();
      return 1;
    }
  }
  fmt::print("{} cases in {:.1f} s with seed {}, {:.0f}/s\n", cases, elapsed(), seed,
             static_cast<double>(cases) / elapsed());
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    const auto& [rejected, read, used] = counts[i];
    fmt::print("{}: {} rejected, {} read only, {} used\n", kKindNames[i], rejected, read, used);
  }
  return 0;
}

}  // namespace
}  // namespace spdkfac::fuzz

int main(int argc, char** argv) {
  double seconds = 10;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--seconds") {
      seconds = std::atof(argv[i + 1]);
    } else if (i + 1 < argc && flag == "--seed") {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      fmt::print(stderr, "reader_fuzz: flags: unknown {}; use --seconds N and --seed S\n", flag);
      return 2;
    }
  }
  return spdkfac::fuzz::run(seconds, seed);
}
