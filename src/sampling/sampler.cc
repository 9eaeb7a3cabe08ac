#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/kernels.h"
#include "sampling/draw.h"
#include "sampling/likeliest.h"
#include "sampling/penalties.h"

namespace drafthouse {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();
// A bound on logits ÷ T is taken so much lower, for the rounding of what it is computed from.
constexpr double kSlack = 1e-3;

bool penalizes(const SamplingOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 ||
         options.frequency_penalty != 0;
}

void weigh(Device& device, std::span<Candidate> from, float largest, float scale,
           std::span<float> values) {
  for (std::size_t i = 0; i < from.size(); ++i) values[i] = from[i].logit;
  device.weights(values.data(), static_cast<std::uint32_t>(from.size()), largest, scale,
                 values.data());
  for (std::size_t i = 0; i < from.size(); ++i) from[i].weight = values[i];
}

}  // namespace

Result<SamplerScratch> SamplerScratch::create(std::uint32_t vocabulary, MemoryLedger& ledger) {
  SamplerScratch scratch;
  scratch.vocabulary_ = vocabulary;
  scratch.group_count_ = groups_of(vocabulary);
  const auto reserve = [&ledger](std::size_t bytes, Buffer& buffer) {
    Result<Buffer> made = Buffer::allocate(bytes, MemoryTag::activations, ledger);
    if (!made.ok()) return made.status();
    buffer = std::move(made).value();
    return Status();
  };
  Status status = reserve(2 * scratch.group_count_ * sizeof(float), scratch.groups_);
  if (status.ok()) status = reserve(2 * std::size_t{vocabulary} * sizeof(float), scratch.values_);
  if (status.ok())
    status = reserve(std::size_t{vocabulary} * sizeof(Candidate), scratch.candidates_);
  if (!status.ok()) return status;
  return scratch;
}

Sampler::Sampler(SamplerJob job)
    : job_(std::move(job)),
      noise_(job_.seed, job_.choice),
      history_(job_.vocabulary, job_.prompt_length, penalizes(job_.options)),
      penalties_(penalizes(job_.options)) {
  const SamplingOptions& options = job_.options;
  restricts_ = !plain(options) || job_.constraint != nullptr;
  filters_ = options.top_k != 0 || options.top_p < 1 || options.min_p > 0 ||
             options.typical_p < 1 || options.xtc_probability > 0;
  history_.reserve(job_.length_max);
  if (job_.constraint != nullptr) mask_.resize((job_.choices + 31) / 32);
  if (options.dry_multiplier > 0) matches_.reserve(job_.length_max);
  if (options.allow_ids.empty()) return;
  allowed_.resize((job_.choices + 63) / 64);
  for (const std::uint32_t id : options.allow_ids) {
    if (id < job_.choices) allowed_[id / 64] |= std::uint64_t{1} << id % 64;
  }
}

void Sampler::sync(std::span<const std::uint32_t> ids) {
  if (job_.constraint == nullptr) return history_.sync(ids);
  forget_guesses();
  const std::size_t before = history_.length();
  const bool goes_on =
      ids.size() >= before && std::equal(history_.ids().begin(), history_.ids().end(), ids.begin());
  history_.sync(ids);
  if (!goes_on && followed_ > 0) {
    if (Status s = job_.constraint->reset(); !s.ok()) failure_ = std::move(s);
    guesser_.reset();
    followed_ = 0;
  }
  for (std::size_t i = job_.prompt_length + followed_; i < ids.size(); ++i) follow(ids[i]);
}

void Sampler::push(std::uint32_t id) {
  history_.push(id);
  if (job_.constraint != nullptr) follow(id);
}

bool Sampler::ends(std::uint32_t id) const {
  return std::binary_search(job_.end_ids.begin(), job_.end_ids.end(), id);
}

void Sampler::follow(std::uint32_t id) {
  ++followed_;
  // Behind an end id there is nothing to follow.
  if (!failure_.ok() || ends(id)) return;
  const Result<bool> taken = job_.constraint->consume(id);
  if (!taken.ok()) failure_ = taken.status();
}

void Sampler::forget_guesses() {
  if (guessed_ > 0 && !guesser_->rollback(guessed_).ok()) guesser_.reset();
  guessed_ = 0;
  astray_ = false;
}

void Sampler::stop_guesses() {
  guesser_.reset();
  guessed_ = 0;
  astray_ = true;
}

bool Sampler::lead_guesses() {
  if (guesser_ == nullptr) {
    Result<std::shared_ptr<Constraint>> made = job_.constraint->clone();
    if (!made.ok()) return false;
    guesser_ = std::move(made).value();
    led_ = followed_;
  }
  for (; guessed_ == 0 && led_ < followed_; ++led_) {
    const std::uint32_t id = history_.ids()[job_.prompt_length + led_];
    if (ends(id)) continue;
    const Result<bool> taken = guesser_->consume(id);
    if (!taken.ok() || !taken.value()) return false;
  }
  return true;
}

Status Sampler::constrain(Constraint& constraint, Row row) {
  if (Status s = constraint.mask(mask_); !s.ok()) return s;
  for (std::size_t word = 0; word < mask_.size(); ++word) {
    const std::uint32_t bits = mask_[word];
    if (bits == 0xffffffffu) continue;
    const std::size_t end = std::min(row.logits.size(), word * 32 + 32);
    for (std::size_t id = word * 32; id < end; ++id) {
      if ((bits >> id % 32 & 1u) == 0) row.logits[id] = kOut;
    }
  }
  return {};
}

bool Sampler::plain(const SamplingOptions& options) {
  return options.temperature == 0 && !penalizes(options) && options.dry_multiplier == 0 &&
         options.logit_bias.empty() && options.ban_ids.empty() && options.allow_ids.empty() &&
         options.min_tokens == 0;
}

std::uint32_t Sampler::choose(Device& device, float* logits, SamplerScratch& scratch) {
  const Row row{{logits, job_.choices}, history_.length()};
  if (job_.logprobs) std::copy_n(logits, job_.choices, scratch.kept_row().begin());
  take_out(row);
  if (job_.constraint != nullptr) {
    forget_guesses();
    if (failure_.ok()) failure_ = constrain(*job_.constraint, row);
    if (!failure_.ok()) return kFailed;
  }
  if (penalties_) apply_penalties(job_.options, history_, row.logits);
  if (job_.options.dry_multiplier > 0) {
    apply_dry(job_.options, history_.ids(), matches_, row.logits);
  }
  const std::uint32_t id = draw(device, row, scratch);
  if (job_.logprobs && id < job_.choices) {
    logprobs_.push_back(record(device, scratch.kept_row().data(), id, scratch));
  }
  return id;
}

TokenLogprob Sampler::record(Device& device, const float* logits, std::uint32_t id,
                             SamplerScratch& scratch) const {
  TokenLogprob made{.id = id, .logprob = 0, .top = {}};
  device.log_probabilities(logits, 1, job_.choices, job_.choices, &id, &made.logprob);
  if (job_.top_logprobs == 0) return made;
  const std::span<Candidate> top =
      likeliest(device, {logits, job_.choices}, job_.top_logprobs, scratch);
  for (const Candidate& candidate : top) {
    const double above = static_cast<double>(candidate.logit) - static_cast<double>(logits[id]);
    made.top.push_back({candidate.id, made.logprob + above});
  }
  return made;
}

void Sampler::score(Device& device, const float* logits, std::span<const std::uint32_t> prompt,
                    std::uint32_t position, SamplerScratch& scratch) {
  // Once each, though a prompt may be computed again.
  if (position >= job_.prompt_length || position != prompt_logprobs_.size() + 1) return;
  if (prompt[position] >= job_.choices) {
    // An id that is never chosen has no probability.
    prompt_logprobs_.push_back(
        {.id = prompt[position], .logprob = -std::numeric_limits<double>::infinity(), .top = {}});
    return;
  }
  prompt_logprobs_.push_back(record(device, logits, prompt[position], scratch));
}

std::uint32_t Sampler::guess(Device& device, float* logits, std::uint32_t ahead,
                             std::uint32_t excluded, SamplerScratch& scratch,
                             CandidateScorer* scorer) {
  const Row row{{logits, job_.choices}, history_.length() + ahead};
  const auto propose = [&] {
    return scorer != nullptr ? draw_scored(device, row, scratch, *scorer)
                             : draw(device, row, scratch);
  };
  take_out(row);
  if (penalties_) apply_penalties(job_.options, history_, row.logits);
  if (excluded < row.logits.size()) row.logits[excluded] = kOut;
  if (job_.constraint == nullptr || astray_) return propose();
  // What fails here concerns proposals alone.
  if (!lead_guesses() || !constrain(*guesser_, row).ok()) {
    stop_guesses();
    return propose();
  }
  std::uint32_t id = propose();
  if (id == kNothing || id == kDamaged) id = first_allowed();
  // An end id is proposed and not taken: nothing can be taken back over it.
  astray_ = id >= job_.choices || ends(id);
  if (astray_) return id;
  const Result<bool> taken = guesser_->consume(id);
  if (!taken.ok()) {
    stop_guesses();
  } else {
    astray_ = !taken.value();
    if (!astray_) ++guessed_;
  }
  return id;
}

std::uint32_t Sampler::first_allowed() const {
  for (std::size_t word = 0; word < mask_.size(); ++word) {
    if (mask_[word] == 0) continue;
    return static_cast<std::uint32_t>(word * 32) +
           static_cast<std::uint32_t>(std::countr_zero(mask_[word]));
  }
  return kNothing;
}

void Sampler::take_out(Row row) const {
  const auto out = [&row](std::uint32_t id) {
    if (id < row.logits.size()) row.logits[id] = kOut;
  };
  for (const LogitBias& bias : job_.options.logit_bias) {
    if (bias.id < row.logits.size()) row.logits[bias.id] += bias.bias;
  }
  for (std::uint32_t id = 0; !allowed_.empty() && id < row.logits.size(); ++id) {
    if ((allowed_[id / 64] >> id % 64 & 1u) == 0) row.logits[id] = kOut;
  }
  for (const std::uint32_t id : job_.options.ban_ids) out(id);
  if (row.position - job_.prompt_length < job_.options.min_tokens) {
    for (const std::uint32_t id : job_.end_ids) out(id);
  }
}

std::uint32_t Sampler::none_left(Row row) {
  const bool lost = std::any_of(row.logits.begin(), row.logits.end(),
                                [](float logit) { return std::isnan(logit); });
  return lost ? kDamaged : kNothing;
}

std::uint32_t Sampler::draw(Device& device, Row row, SamplerScratch& scratch) const {
  const auto count = static_cast<std::uint32_t>(row.logits.size());
  if (job_.options.temperature == 0) {
    std::uint32_t best = 0;
    device.argmax(row.logits.data(), 1, count, count, count, &best);
    const float largest = row.logits[best];
    if (std::isfinite(largest)) return best;
    return largest == kOut && restricts_ ? none_left(row) : kDamaged;
  }
  const std::span<float> maxima = scratch.groups().first(groups_of(count));
  device.group_maxima(row.logits.data(), count, maxima.data());
  const float largest = *std::max_element(maxima.begin(), maxima.end());
  if (!std::isfinite(largest)) return largest == kOut ? none_left(row) : kDamaged;
  if (filters_) return draw_filtered(device, row, largest, scratch);

  const float scale = 1 / job_.options.temperature;
  const std::span<float> sums = scratch.more_groups().first(maxima.size());
  device.group_weights(row.logits.data(), count, largest, scale, sums.data());
  const std::uint32_t first = draw_group(noise_, row.position, sums) * kLogitGroup;
  float weights[kLogitGroup];
  const std::uint32_t size = std::min(kLogitGroup, count - first);
  device.weights(row.logits.data() + first, size, largest, scale, weights);
  return draw_id(noise_, row.position, first, {weights, size});
}

float Sampler::lowest_useful(Device& device, Row row, float largest, SamplerScratch& scratch,
                             double& total) const {
  const SamplingOptions& options = job_.options;
  const std::span<float> maxima = scratch.groups().first(groups_of(row.logits.size()));
  const std::span<float> other = scratch.more_groups().first(maxima.size());
  if (options.top_k > 0) return kth_largest(maxima, options.top_k, other);
  const double temperature = static_cast<double>(options.temperature);
  double least = static_cast<double>(options.min_p);
  if (options.top_p < 1) {
    device.group_weights(row.logits.data(), static_cast<std::uint32_t>(row.logits.size()), largest,
                         1 / options.temperature, other.data());
    total = 0;
    for (const float sum : other) total += static_cast<double>(sum);
    // All ids below this weight have less than 1 − p together.
    least = std::max(least, (1 - static_cast<double>(options.top_p)) * total /
                                static_cast<double>(row.logits.size()));
  }
  if (least == 0) return kOut;
  const double bound = static_cast<double>(largest) + temperature * (natural_log(least) - kSlack);
  return std::nextafter(static_cast<float>(bound), kOut);
}

std::uint32_t Sampler::draw_filtered(Device& device, Row row, float largest,
                                     SamplerScratch& scratch) const {
  const SamplingOptions& options = job_.options;
  double total = 0;
  const float lowest = lowest_useful(device, row, largest, scratch, total);
  std::span<Candidate> left =
      gather(row.logits, scratch.groups().first(groups_of(row.logits.size())), lowest,
             scratch.candidates());
  if (options.top_k > 0) total = 0;
  return draw_among(device, row.position, left, {.largest = largest, .total = total}, scratch);
}

std::uint32_t Sampler::draw_scored(Device& device, Row row, SamplerScratch& scratch,
                                   CandidateScorer& scorer) const {
  if (job_.options.temperature == 0) {
    return best_scored(device, row.logits, scorer, scratch, kNothing);
  }
  const std::span<Candidate> left = likeliest(device, row.logits, scorer.top_k(), scratch);
  scorer.rescore(left);
  float largest = kOut;
  for (const Candidate& candidate : left) largest = std::max(largest, candidate.logit);
  if (!std::isfinite(largest)) return kNothing;
  return draw_among(device, row.position, left, {.largest = largest}, scratch);
}

std::uint32_t Sampler::draw_among(Device& device, std::uint32_t position, std::span<Candidate> left,
                                  Weighing weighing, SamplerScratch& scratch) const {
  const SamplingOptions& options = job_.options;
  const float largest = weighing.largest;
  if (options.top_k > 0) left = keep_top_k(left, options.top_k);
  weigh(device, left, largest, 1 / options.temperature, scratch.values());
  if (options.top_p < 1) {
    const double total = weighing.total > 0 ? weighing.total : total_weight(left);
    left = keep_top_p(left, static_cast<double>(options.top_p), total);
  }
  if (options.min_p > 0) left = keep_min_p(left, options.min_p);
  if (options.typical_p < 1) {
    left = keep_typical(left, static_cast<double>(options.typical_p), largest,
                        1 / options.temperature);
  }
  if (options.xtc_probability > 0 &&
      noise_.uniform(position, Purpose::xtc, 0) < static_cast<double>(options.xtc_probability)) {
    left = drop_top_choices(left, static_cast<double>(options.xtc_threshold));
  }
  return draw_candidate(noise_, position, left);
}

}  // namespace drafthouse
