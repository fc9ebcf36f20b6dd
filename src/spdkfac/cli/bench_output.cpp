// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/bench_output.h"

namespace spdkfac::cli {

void RecordFlags::add_to(CLI::App& verb) {
  verb.add_option("--out", out, "Write the record to this file, for 'spdkfac report'")
      ->type_name("FILE");
  verb.add_flag("--json", json, "Print the record");
}

void write_record(const Json& record, const std::string& text, const RecordFlags& flags,
                  int indent) {
  if (!flags.out.empty()) write_file_atomically(flags.out, record.dump(indent) + "\n");
  if (flags.json) {
    print_json(record);
  } else {
    print(text);
  }
}

bench::ProgressListener ProgressBar::listener() {
  return {.begin = [this](const std::string& what,
                          std::size_t steps) { progress_.emplace(what, steps); },
          .advance = [this] { progress_->advance(); }};
}

}  // namespace spdkfac::cli
