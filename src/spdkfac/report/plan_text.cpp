// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/plan_text.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/report/table.h"

namespace spdkfac::report {
namespace {

constexpr std::size_t kSummaryOwners = 12;
constexpr std::size_t kSummaryFactorsWidth = 46;  // of the names in a row of owners
constexpr std::size_t kLoadBarWidth = 24;

std::string millions(std::int64_t elements) {
  return fmt::format("{:.3f}", static_cast<double>(elements) / 1e6);
}

bool is_mixed(const Message& message) {
  return std::any_of(message.members.begin(), message.members.end(), [&](const Member& member) {
    return member.kind != message.members.front().kind;
  });
}

std::string kind_of(const Message& message) {
  return is_mixed(message) ? "mixed" : name_of(tensor_kind_names(), message.members.front().kind);
}

// Layers of one message: 3, 4-9, or for mixed messages A50-53 g53 G53 (g: gradient).
std::string layers_of(const Message& message) {
  static constexpr const char* kLetters[] = {"A", "G", "g", "t"};
  const bool mixed = is_mixed(message);
  std::string text;
  const std::vector<Member>& members = message.members;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t end = i + 1;
    while (end < members.size() && members[end].kind == members[i].kind &&
           std::abs(members[end].layer - members[end - 1].layer) == 1) {
      ++end;
    }
    if (!text.empty()) text += ' ';
    if (mixed) text += kLetters[static_cast<std::size_t>(members[i].kind)];
    text += std::to_string(members[i].layer);
    if (end > i + 1) text += fmt::format("-{}", members[end - 1].layer);
    i = end;
  }
  return text;
}

// Long runs of short mixed pieces say less than how many there are.
std::string short_layers_of(const Message& message) {
  const std::string text = layers_of(message);
  if (text.size() <= 24) return text;
  const auto [low, high] =
      std::minmax_element(message.members.begin(), message.members.end(),
                          [](const Member& a, const Member& b) { return a.layer < b.layer; });
  return fmt::format("({} tensors, layers {} to {})", message.members.size(), low->layer,
                     high->layer);
}

std::string route_of(const Message& message) {
  return message.route.root ? fmt::format("reduce to {}", *message.route.root) : "all_reduce";
}

// Appends words to lines of kPageWidth, indented.
class Wrapped {
 public:
  explicit Wrapped(std::string first)
      : indent_(display_width(first), ' '), line_(std::move(first)) {}

  void add(const std::string& word, const std::string& separator) {
    const std::string piece = empty_ ? word : separator + word;
    const std::string end = separator.substr(0, separator.find_last_not_of(' ') + 1);
    if (!empty_ && display_width(line_ + piece + end) > kPageWidth) {
      text_ += line_ + end + '\n';
      line_ = indent_ + word;
    } else {
      line_ += piece;
    }
    empty_ = false;
  }
  std::string text() const { return text_ + line_ + '\n'; }

 private:
  std::string indent_;
  std::string line_;
  std::string text_;
  bool empty_ = true;
};

std::string messages_summary(const Plan& plan) {
  std::map<std::string, std::vector<const Message*>> by_kind;
  std::vector<std::string> kinds;
  std::int64_t total = 0;
  for (const Message& message : plan.messages) {
    auto& list = by_kind[kind_of(message)];
    if (list.empty()) kinds.push_back(kind_of(message));
    list.push_back(&message);
    total += message.elements;
  }
  std::string text = fmt::format("messages: {}, {} M elements, layers in launch order\n",
                                 plan.messages.size(), millions(total));
  std::size_t width = 9;
  for (const std::string& kind : kinds) width = std::max(width, kind.size());
  for (const std::string& kind : kinds) {
    Wrapped lines(fmt::format("  {:<{}}{:>4}  ", kind, width, by_kind[kind].size()));
    for (const Message* message : by_kind[kind]) lines.add(short_layers_of(*message), " | ");
    text += lines.text();
  }
  return text;
}

std::string messages_table(const Plan& plan) {
  Table table({{"message"},
               {"kind", Table::Align::kLeft},
               {"travels", Table::Align::kLeft},
               {"M elements"},
               {"tensors"},
               {"layers", Table::Align::kLeft}});
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    const Message& message = plan.messages[i];
    table.add_row({std::to_string(i), kind_of(message), route_of(message),
                   millions(message.elements), std::to_string(message.members.size()),
                   layers_of(message)});
  }
  return table.text();
}

std::string factor_label(const FactorPlacement& factor) {
  return fmt::format("{}{}({}{})", factor.side == FactorSide::kA ? "A" : "G", factor.layer,
                     factor.dim, factor.blocks == 1 ? "" : fmt::format("x{}", factor.blocks));
}

struct Load {
  Seconds inverses;
  std::vector<std::string> factors;
};

std::string join_factors(const std::vector<std::string>& factors, bool full) {
  std::string text;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!full && text.size() + 1 + factors[i].size() > kSummaryFactorsWidth) {
      return fmt::format("{} and {} more", text, factors.size() - i);
    }
    text += (i > 0 ? " " : "") + factors[i];
  }
  return text;
}

struct Loads {
  Load everywhere;
  std::map<int, Load> owned;
  std::size_t gradients = 0;  // factors whose owner sends the gradient
};

Loads loads_of(const Plan& plan, const ModelSpec& model, const CostModel& costs) {
  Loads loads;
  for (const FactorPlacement& factor : plan.placements) {
    Load& load = factor.owner ? loads.owned[*factor.owner] : loads.everywhere;
    load.inverses += inverse_time(model.layers[static_cast<std::size_t>(factor.layer)], factor.side,
                                  costs, plan.options);
    load.factors.push_back(factor_label(factor));
    if (factor.sends_gradient) ++loads.gradients;
  }
  return loads;
}

std::string everywhere_text(const Loads& loads) {
  if (loads.everywhere.factors.empty()) return "";
  return fmt::format("  every rank inverts {}: {:.1f} ms\n", loads.everywhere.factors.size(),
                     1e3 * loads.everywhere.inverses.value());
}

std::string what_owners_send(const Plan& plan, std::size_t gradients, std::size_t everywhere) {
  const WorkerGrid grid = worker_grid(plan.options, plan.world);
  if (grid.workers > 1 && grid.columns > 1) {
    return fmt::format("inverses to {} gradient workers, who send V", grid.workers);
  }
  if (grid.columns > 1) return plan.options.method == Method::kKfac ? "gradients" : "updates";
  if (gradients == 0) return "inverses";
  return gradients + everywhere == plan.placements.size() ? "gradients" : "gradients or inverses";
}

std::string owned_text(const Plan& plan, const Loads& loads) {
  if (loads.owned.empty()) return "";
  const std::size_t everywhere = loads.everywhere.factors.size();
  return fmt::format("  {} owned by {} of {} ranks; owners send {}\n",
                     plan.placements.size() - everywhere, loads.owned.size(), plan.world,
                     what_owners_send(plan, loads.gradients, everywhere));
}

std::string owners_text(const Plan& plan, const ModelSpec& model, const CostModel& costs,
                        bool full) {
  const Loads loads = loads_of(plan, model, costs);
  std::string text =
      fmt::format("\nfactors: {}, written A or G, layer, (dimension)\n", plan.placements.size());
  text += everywhere_text(loads);
  if (full && !loads.everywhere.factors.empty()) {
    Wrapped lines("    ");
    for (const std::string& factor : loads.everywhere.factors) lines.add(factor, " ");
    text += lines.text();
  }
  text += owned_text(plan, loads);
  const auto& owned = loads.owned;
  if (owned.empty()) return text;
  Seconds largest(0);
  for (const auto& [rank, load] : owned) largest = std::max(largest, load.inverses);
  Table table({{"rank"}, {"ms"}, {"", Table::Align::kLeft}, {"owns", Table::Align::kLeft}});
  for (const auto& [rank, load] : owned) {
    if (!full && table.rows() == kSummaryOwners) break;
    table.add_row({std::to_string(rank), fmt::format("{:.1f}", 1e3 * load.inverses.value()),
                   bar(load.inverses / largest, kLoadBarWidth), join_factors(load.factors, full)});
  }
  text += table.text();
  if (table.rows() < owned.size()) {
    text += fmt::format("… and {} more owners; --full lists all\n", owned.size() - table.rows());
  }
  return text;
}

std::string heading(const Plan& plan, const ModelSpec& model, const CostModel& costs) {
  std::string text = fmt::format("{} for {} ({} layers, batch {}) on {} rank{} of {}\n",
                                 plan.algorithm, model.name, model.layers.size(), model.batch,
                                 plan.world, plan.world == 1 ? "" : "s", costs.name);
  std::string what = fmt::format("{} fusion", name_of(fusion_names(), plan.options.fusion));
  if (plan.options.method != Method::kKfac) {
    what = fmt::format("{}, {}", name_of(method_names(), plan.options.method), what);
  }
  if (keeps_basis(plan.options.solver)) {
    what = fmt::format("solver {}, {}", name_of(solver_names(), plan.options.solver), what);
  }
  if (plan.options.second_order()) {
    what += fmt::format(", {} factors, {} inverses, {} step",
                        name_of(factor_schedule_names(), plan.options.factor_schedule),
                        name_of(placement_names(), plan.options.placement),
                        name_of(step_names(), plan.step));
    if (plan.intervals.inverses > 1) {
      const std::int64_t over = plan.intervals.growing_over;
      what += fmt::format(", factors {}every {} and inverses {}every {} steps",
                          over > 0 ? "at most " : "", plan.intervals.factors,
                          over > 0 ? "at most " : "", plan.intervals.inverses);
      if (over > 0) what += fmt::format(", growing over {} steps", over);
      if (plan.intervals.spread) what += ", refreshes spread";
    }
  }
  text += wrap(what + ", digest " + plan.digest(), kPageWidth) + "\n";
  if (plan.predicted_iteration) {
    text += fmt::format("forecast: {:.1f} ms {}\n", 1e3 * plan.predicted_iteration->value(),
                        plan.intervals.spread ? "for the slowest step" : "per iteration");
  }
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan, const ModelSpec& model, const CostModel& costs, bool full) {
  std::string text = heading(plan, model, costs) + "\n";
  if (plan.messages.empty()) {
    text += "messages: none\n";
  } else {
    text += full ? messages_table(plan) : messages_summary(plan);
  }
  if (!plan.placements.empty()) text += owners_text(plan, model, costs, full);
  return text;
}

std::string plan_summary(const Plan& plan, const ModelSpec& model, const CostModel& costs) {
  std::int64_t elements = 0;
  for (const Message& message : plan.messages) elements += message.elements;
  const Loads loads = loads_of(plan, model, costs);
  return heading(plan, model, costs) +
         fmt::format("messages: {}, {} M elements\nfactors: {}\n", plan.messages.size(),
                     millions(elements), plan.placements.size()) +
         everywhere_text(loads) + owned_text(plan, loads);
}

}  // namespace spdkfac::report
