// SPDX-License-Identifier: Apache-2.0
// The verbs that print texts made from the flags of all verbs: man page and shell completion.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/help.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/plan_options.h"

namespace spdkfac::cli {
namespace {

// Calls `visit` with "plan", "bench", "bench iteration", …
void for_each_verb(const CLI::App& app, const std::string& before,
                   const std::function<void(const std::string&, const CLI::App&)>& visit) {
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    const std::string name = before + verb->get_name();
    visit(name, *verb);
    for_each_verb(*verb, name + " ", visit);
  }
}

// -h,--help → --help
std::string long_name(const std::string& names) {
  const std::size_t at = names.find("--");
  return at == std::string::npos ? names : names.substr(at);
}

bool is_file(const FlagText& flag) { return flag.type == "FILE" || flag.type == "DIR"; }

// The words that a flag of a verb takes, as far as they are known.
std::vector<std::string> values_of(const CLI::App& verb, const FlagText& flag) {
  if (!flag.choices.empty()) return flag.choices;
  if (flag.names == "--cluster") return data_names("clusters");
  // Models of LibTorch have other names than bundled tables.
  const bool takes_tables = verb.get_option_no_throw("--model-file") != nullptr;
  if (flag.names == "--model" && takes_tables) return data_names("models");
  if (flag.names == "--algorithm") {
    std::vector<std::string> names = {kAutoAlgorithm};
    for (const AlgorithmInfo& info : named_algorithms()) names.push_back(info.name);
    if (takes_tables && verb.get_name() != "advise") {
      for (const AlgorithmInfo& info : other_methods()) names.push_back(info.name);
    }
    return names;
  }
  return {};
}

struct VerbWords {
  std::vector<std::string> words;  // verbs below it and flags
  std::string cases;               // what comes behind a flag, for bash
};

VerbWords bash_words(const std::string& name, const CLI::App& verb) {
  VerbWords result;
  std::vector<std::string> files;
  std::vector<std::string> others;
  for (const CLI::App* below : verb.get_subcommands(nullptr)) {
    result.words.push_back(below->get_name());
  }
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) continue;
    const FlagText flag = flag_text(*option);
    const std::string pattern = fmt::format("\"{} {}\"", name, long_name(flag.names));
    result.words.push_back(long_name(flag.names));
    if (flag.type.empty()) continue;
    const auto values = values_of(verb, flag);
    if (!values.empty()) {
      result.cases += fmt::format("    {}) words=\"{}\";;\n", pattern, fmt::join(values, " "));
    } else {
      (is_file(flag) ? files : others).push_back(pattern);
    }
  }
  if (!files.empty()) {
    result.cases += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return;;\n",
                                fmt::join(files, "|"));
  }
  if (!others.empty()) result.cases += fmt::format("    {}) return;;\n", fmt::join(others, "|"));
  return result;
}

std::string bash_completion(const CLI::App& app) {
  std::string values;
  std::string verbs;
  for_each_verb(app, "", [&](const std::string& name, const CLI::App& verb) {
    const VerbWords found = bash_words(name, verb);
    values += found.cases;
    verbs += fmt::format("    \"{}\") words=\"{}\";;\n", name, fmt::join(found.words, " "));
  });
  return fmt::format(R"(_spdkfac() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
  local verb=${{COMP_WORDS[1]}}
  # A verb may have verbs of its own.
  [[ $verb == bench && $COMP_CWORD -gt 2 ]] && verb+=" ${{COMP_WORDS[2]}}"
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "{}" -- "$word"))
    return
  fi
  case "$verb $before" in
{}  esac
  [[ -z $words ]] && case "$verb" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _spdkfac spdkfac
)",
                     fmt::join(bash_words("", app).words, " "), values, verbs);
}

std::string fish_quote(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("'\\", at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return "'" + text + "'";
}

std::string fish_completion(const CLI::App& app) {
  std::string text = "complete -c spdkfac -f\n";
  for_each_verb(app, "", [&](const std::string& name, const CLI::App& verb) {
    std::string seen = "__fish_use_subcommand";
    const std::size_t blank = name.find(' ');
    if (blank != std::string::npos) {
      seen = "__fish_seen_subcommand_from " + name.substr(0, blank);
    }
    text += fmt::format("complete -c spdkfac -n '{}' -a {} -d {}\n", seen, verb.get_name(),
                        fish_quote(verb.get_description()));
    for (const CLI::Option* option : verb.get_options()) {
      if (option->get_positional()) continue;
      const FlagText flag = flag_text(*option);
      text += fmt::format("complete -c spdkfac -n '__fish_seen_subcommand_from {}' -l {} -d {}",
                          verb.get_name(), long_name(flag.names).substr(2),
                          fish_quote(option->get_description()));
      const auto values = values_of(verb, flag);
      if (!values.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(values, " "));
      } else if (!flag.type.empty()) {
        text += is_file(flag) ? " -r -F" : " -x";
      }
      text += '\n';
    }
  });
  return text;
}

std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "fish") return fish_completion(app);
  return "#compdef spdkfac\nautoload -U +X bashcompinit && bashcompinit\n" + bash_completion(app);
}

// The character at the start of UTF-8 text and its length in bytes.
std::pair<unsigned, std::size_t> first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < std::min(length, text.size()); ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return {code, length};
}

// Text for troff, in ASCII: no hyphenation of flags, no line that looks like a command.
std::string roff(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto [code, length] = first_character(std::string_view(text).substr(i));
    const char c = text[i];
    i += length;
    if (length > 1) {
      result += fmt::format("\\[u{:04X}]", code);
    } else if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
      result += c;
    }
  }
  return result;
}

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH SPDKFAC 1\n.SH NAME\nspdkfac \\- {}\n.SH SYNOPSIS\n.B spdkfac\nVERB [FLAGS]\n.SH "
      "VERBS\n",
      roff(app.get_description().substr(app.get_description().find(' ') + 1)));
  for_each_verb(app, "", [&](const std::string& name, const CLI::App& verb) {
    text += fmt::format(".SS {}\n{}\n", roff(name), roff(verb.get_description()));
    for (const CLI::Option* option : verb.get_options()) {
      const FlagText flag = flag_text(*option);
      text += fmt::format(".TP\n\\fB{}\\fR \\fI{}\\fR\n{}\n", roff(flag.names), roff(flag.type),
                          roff(flag.text));
    }
    if (!verb.get_footer().empty()) text += fmt::format(".PP\n{}\n", roff(verb.get_footer()));
  });
  return text +
         ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nThe run failed.\n.TP\n2\nA mistake in flags, "
         "files or environment.\n.TP\n130, 143\ntrain was stopped by SIGINT or SIGTERM and has "
         "saved its state.\n";
}

}  // namespace

void add_help_verb(CLI::App& app) {
  struct State {
    std::vector<std::string> verbs;
    bool man = false;
  };
  const auto state = std::make_shared<State>();
  CLI::App* verb = app.add_subcommand("help", "Show the help of a verb, or the manual page");
  verb->add_option("verb", state->verbs, "Verb to explain (default: the program)")
      ->type_name("VERB");
  verb->add_flag("--man", state->man, "Print the manual page, for 'man -l -'");
  verb->footer("Example: spdkfac help simulate");
  // Without a flag it never gets here: `help VERB` was read as `VERB --help`.
  verb->callback([state, &app] {
    if (!state->verbs.empty()) {
      throw ConfigError("flags: help --man is about all verbs; remove the name of the verb");
    }
    print(man_page(app));
  });
}

void add_completion_verb(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("completion", "Print a script that completes words in a shell");
  verb->add_option("shell", *shell, "Shell")
      ->check(one_of({"bash", "zsh", "fish"}))
      ->type_name("SHELL")
      ->required();
  verb->footer(
      "Example: source <(spdkfac completion bash)\n"
      "         spdkfac completion fish > ~/.config/fish/completions/spdkfac.fish");
  verb->callback([shell, &app] { print(completion(app, *shell)); });
}

}  // namespace spdkfac::cli
