#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace drafthouse {

// Layer groups that a model may have.
inline constexpr std::uint32_t kLayerGroupsMax = 8;
// Rotary settings that a model's layers may have.
inline constexpr std::uint32_t kRopesMax = 2;

// Consecutive rows of one sequence inside a pass.
struct StepSpan {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t first_position = 0;
  // Per layer group of the model, the pages of this sequence in order of position; null where a
  // page has left the group's reach or is missing: its positions are not seen. The table must cover
  // the span's own rows.
  std::array<std::byte* const*, kLayerGroupsMax> pages = {};
  // Where the taps of these rows go, [rows][tap width]; null: none are wanted.
  float* taps = nullptr;
};

// cos and sin of every row's position under one rotary setting, [rows][pairs] each.
struct RotaryTable {
  std::uint32_t pairs = 0;
  std::vector<float> cos;
  std::vector<float> sin;
};

// What one forward pass works on. Operations read rows, positions and page tables from here and
// nowhere else, so one model file serves any mix of sequences and widths.
struct StepTable {
  std::uint32_t rows = 0;
  std::vector<std::uint32_t> ids;        // [rows]
  std::vector<std::uint32_t> positions;  // [rows]
  std::vector<StepSpan> spans;
  std::vector<std::uint32_t> logit_rows;      // rows whose logits are wanted, ascending
  std::array<RotaryTable, kRopesMax> rotary;  // filled by the model

  // Empties the table and keeps its memory.
  void clear() {
    rows = 0;
    ids.clear();
    positions.clear();
    spans.clear();
    logit_rows.clear();
  }
};

}  // namespace drafthouse
