#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace drafthouse {

// The largest block that a draft may have.
inline constexpr std::uint32_t kBlockRowsMax = 64;

// Measured seconds of passes on one machine, by rows.
class CostTable {
 public:
  struct Point {
    std::uint32_t rows;
    double seconds;
  };
  // Both ascending in rows and starting at 1; between points costs are interpolated, and never fall
  // with more rows. `draft` holds the whole draft pass for proposing rows − 1 ids; it may be empty.
  CostTable(std::vector<Point> verify, std::vector<Point> draft);

  double verify(std::uint32_t rows) const { return at(verify_, rows); }
  // A whole turn of this width: the target's pass and, from width 2 on, the draft's.
  double turn(std::uint32_t width) const {
    return width <= 1 ? verify(1) : verify(width) + at(draft_, width);
  }
  bool has_draft() const { return !draft_.empty(); }

 private:
  static double at(const std::vector<Point>& points, std::uint32_t rows);

  std::vector<Point> verify_;
  std::vector<Point> draft_;
};

// How far proposals of one sequence survive: for each place in the block the rate at which it is
// accepted when the one before it was. Recent turns count more. Places that a narrow turn never
// showed to the target borrow the overall rate.
class SurvivalCurve {
 public:
  void observe(std::uint32_t proposed, std::uint32_t accepted);
  // Expected ids of a turn of this width, next included.
  double expected_gain(std::uint32_t width) const;

 private:
  struct Rate {
    double tries = 0;
    double hits = 0;
  };
  std::array<Rate, kBlockRowsMax> places_{};
  Rate overall_;
};

// Chooses the width of every turn of one sequence so that speculation pays, and so that a draft that
// does not help costs next to nothing: what speculation may lose against plain decoding is bounded
// by an allowance, counted in plain steps, that grows slowly with the ids produced. Ids never depend
// on the choice. Confined to one thread.
class WidthPolicy {
 public:
  WidthPolicy(const CostTable& costs, std::uint32_t block_size);

  // Width of the next turn, at least 1 and at most `room`.
  std::uint32_t choose(std::uint32_t room) const;
  // What the turn gave: ids gained, next included, and how long it took.
  void observe(std::uint32_t width, std::uint32_t gained, double seconds);

  // Seconds of a plain step as things stand now.
  double plain_step_s() const { return drift_ * costs_.turn(1); }
  // One line for people: costs in plain steps, the widths chosen, and why.
  std::string explain() const;

 private:
  double cost(std::uint32_t width) const;  // in plain steps

  const CostTable& costs_;
  std::uint32_t block_size_;
  SurvivalCurve survival_;
  double drift_ = 1.0;    // recent times over the table's
  double balance_ = 0.0;  // plain steps that speculation has won (or lost, below 0) so far
  std::uint64_t ids_ = 0;
  std::array<std::uint64_t, kBlockRowsMax + 1> chosen_{};
};

}  // namespace drafthouse
