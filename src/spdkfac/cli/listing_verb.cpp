// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/listing_verb.h"

#include <memory>
#include <utility>

#include "spdkfac/cli/output.h"

namespace spdkfac::cli {

void add_listing_verb(CLI::App& app, const std::string& verb, const std::string& help,
                      const std::string& name_help, Listing listing) {
  struct State {
    std::string name;
    bool json = false;
  };
  const auto state = std::make_shared<State>();
  CLI::App* command = app.add_subcommand(verb, help);
  command->add_option("name", state->name, name_help)->type_name("NAME");
  command->add_flag("--json", state->json, "Print its file")->needs("name");
  command->callback([state, listing = std::move(listing)] {
    if (state->name.empty()) {
      listing.list();
    } else if (state->json) {
      print_json(listing.json(state->name));
    } else {
      listing.show(state->name);
    }
  });
}

}  // namespace spdkfac::cli
