// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/help.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/nearest_name.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

constexpr std::size_t kFlagColumn = 34;
constexpr std::string_view kOneOf = "one of ";

// CLI11 joins a type and what its validators say with colons. Types are in capitals, and
// RANK:FACTOR is one of them; what our validators say begins in lower case.
std::pair<std::string, std::string> split_type(const std::string& text) {
  for (std::size_t colon = text.find(':'); colon != std::string::npos;
       colon = text.find(':', colon + 1)) {
    if (colon + 1 < text.size() && std::islower(static_cast<unsigned char>(text[colon + 1]))) {
      return {text.substr(0, colon), text.substr(colon + 1)};
    }
  }
  return {text, ""};
}

std::vector<std::string> split_choices(std::string_view list) {
  std::vector<std::string> choices;
  while (!list.empty()) {
    const std::size_t comma = list.find(", ");
    choices.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? "" : list.substr(comma + 2);
  }
  return choices;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kFlagColumn);
    label("SUBCOMMAND", "VERB");
    label("OPTIONS", "FLAGS");
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = text.find("\n\n\n"); at != std::string::npos;
         at = text.find("\n\n\n", at)) {
      text.erase(at, 1);
    }
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = flag_text(*option).type;
    return type.empty() ? "" : " " + type;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return report::wrap(flag_text(*option).text, report::kPageWidth - kFlagColumn);
  }
};

const CLI::App& last_verb(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? app : last_verb(*verbs.front());
}

// spdkfac bench iteration
std::string command_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : command_of(*parent) + " " + app.get_name();
}

std::string did_you_mean(const std::string& word, const std::set<std::string>& known,
                         const std::string& otherwise) {
  const std::string nearest = nearest_name(word, known);
  return nearest.empty() ? otherwise : fmt::format("did you mean {}?", nearest);
}

// What CLI11 says of a wrong number of values, in our words.
std::string explain_values(const std::string& text) {
  const std::string flag = text.substr(0, text.find(':'));
  if (text.ends_with("missing")) return flag + " needs a value";
  if (text.find("At Most 1 required") != std::string::npos) {
    return flag + " is given more than once";
  }
  return text;
}

std::string unknown_flag(const CLI::App& verb, const std::string& word) {
  std::set<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.insert("--" + name);
  }
  const std::string flag = word.substr(0, word.find('='));
  return fmt::format("flags: {} has no flag {}; {}", command_of(verb), flag,
                     did_you_mean(flag, known, fmt::format("see {} --help", command_of(verb))));
}

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

FlagText flag_text(const CLI::Option& option) {
  FlagText flag;
  flag.names = option.get_name(option.get_positional(), !option.get_positional());
  flag.text = option.get_description();
  const auto [type, accepted] = split_type(option.get_type_name());
  if (option.get_type_size() != 0) flag.type = type;
  const bool is_list = accepted.starts_with(kOneOf);
  if (is_list) flag.choices = split_choices(std::string_view(accepted).substr(kOneOf.size()));
  // Some texts name the choices themselves, to say more of each.
  const bool named =
      is_list && std::all_of(flag.choices.begin(), flag.choices.end(), [&](const auto& choice) {
        return flag.text.find(choice) != std::string::npos;
      });
  if (!accepted.empty() && !named) flag.text += "; " + accepted;
  std::vector<std::string> others;
  for (const CLI::Option* other : option.get_excludes()) others.push_back(other->get_name());
  std::sort(others.begin(), others.end());
  if (!others.empty()) flag.text += fmt::format("; not with {}", fmt::join(others, ", "));
  if (option.get_required()) flag.text += "; required";
  return flag;
}

std::string unknown_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) names.push_back(verb->get_name());
  return fmt::format("flags: {} has no verb {}; {}", command_of(app), word,
                     did_you_mean(word, {names.begin(), names.end()},
                                  fmt::format("choose one of {}", fmt::join(names, ", "))));
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = last_verb(app);
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  for (const std::string& word : words) {
    if (word.size() > 1 && word[0] == '-') return unknown_flag(verb, word);
  }
  const bool needs_verb = verb.get_require_subcommand_min() > 0;
  if (!words.empty()) {
    if (needs_verb) return unknown_verb(verb, words.front());
    return fmt::format("flags: {} does not expect the word {}; see {} --help", command_of(verb),
                       words.front(), command_of(verb));
  }
  if (needs_verb && error.get_name() == "RequiredError") return "";
  return fmt::format("flags: {}; see {} --help", explain_values(error.what()), command_of(verb));
}

}  // namespace spdkfac::cli
