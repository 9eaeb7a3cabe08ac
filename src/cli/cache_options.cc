#include "cli/cache_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/byte_size.h"
#include "cli/output.h"

namespace drafthouse::cli {

void add_cache_options(CLI::App& verb, CacheOptions& options) {
  verb.add_option("--cache-dir", options.directory,
                  "Keep the state of prompts and answers in this folder, for later runs too")
      ->type_name("FOLDER")
      ->check(not_empty("a folder"));
  verb.add_option("--cache-limit", options.limit,
                  "Bytes of that whole folder at most; 0: no limit [20GiB]")
      ->type_name("SIZE")
      ->check(bytes_check());
}

std::string cache_refusal(const CacheOptions& options) {
  if (!options.limit.empty() && options.directory.empty()) return "--cache-limit needs --cache-dir";
  return "";
}

CacheConfig cache_config(const CacheOptions& options) {
  CacheConfig config;
  config.disk_directory = options.directory;
  if (!options.limit.empty()) config.disk_bytes = parse_bytes(options.limit).value_or(0);
  return config;
}

ModelSpec model_spec(const std::string& name, const ModelOptions& model,
                     const CacheOptions& cache) {
  ModelSpec spec;
  spec.name = name;
  spec.target = model.target;
  spec.draft = model.draft;
  spec.compute_fp32 = model.compute == "fp32";
  spec.context = model.context;
  spec.draft_window = model.draft_window.value_or(kDraftWindow);
  spec.draft_sink = model.draft_sink.value_or(kDraftSink);
  spec.isa = model.isa;
  spec.packed_directory = model.packed_directory;
  spec.cache = cache_config(cache);
  return spec;
}

void flush_cache(Host& host, const CacheOptions& options, double deadline_s) {
  if (options.directory.empty()) return;
  const Status status = host.flush_cache(deadline_s);
  if (!status.ok()) {
    say(fmt::format("not everything was stored in {}: {}", options.directory, status.message()));
  }
}

}  // namespace drafthouse::cli
