#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace drafthouse {

// The largest block that a draft may have.
inline constexpr std::uint32_t kBlockRowsMax = 64;

// The turns that share one draft pass and one verify pass.
struct BatchShape {
  std::uint32_t sequences = 1;
  std::uint32_t rows = 1;      // of the verify pass
  std::uint32_t drafting = 0;  // sequences with more than one row

  std::uint32_t proposals() const { return rows - sequences; }
};

// Measured seconds of passes on one machine, by rows.
class CostTable {
 public:
  struct Point {
    std::uint32_t rows;
    double seconds;
  };
  // All ascending in rows and starting at 1; between points costs are interpolated, past the last
  // one they go on as they rose, and they never fall with more rows. `draft` holds the whole draft
  // pass for proposing rows − 1 ids to one sequence; it may be empty. `blocks`: the draft pass by
  // number of sequences instead of rows; where it is empty, every sequence costs as much as the
  // first.
  CostTable(std::vector<Point> verify, std::vector<Point> draft, std::vector<Point> blocks = {});

  double verify(std::uint32_t rows) const { return at(verify_, rows); }
  // A whole turn of this width: the target's pass and, from width 2 on, the draft's.
  double turn(std::uint32_t width) const {
    return width <= 1 ? verify(1) : verify(width) + at(draft_, width);
  }
  double turn(const BatchShape& shape) const;
  bool has_draft() const { return !draft_.empty(); }

 private:
  static double at(const std::vector<Point>& points, std::uint32_t rows);

  std::vector<Point> verify_;
  std::vector<Point> draft_;
  std::vector<Point> blocks_;
};

// How far proposals of one sequence survive: for each place in the block the rate at which it is
// accepted when the one before it was. Recent turns count more. Places that a narrow turn never
// showed to the target borrow the overall rate.
class SurvivalCurve {
 public:
  void observe(std::uint32_t proposed, std::uint32_t accepted);
  // Expected ids of a turn of this width, next included.
  double expected_gain(std::uint32_t width) const;
  // How likely the proposals up to place i (0-based) are all accepted: expected_gain(i + 2) −
  // expected_gain(i + 1) for each i < out.size(). Never rises with i.
  void expected_survival(std::span<double> out) const;

 private:
  struct Rate {
    double tries = 0;
    double hits = 0;
  };
  std::array<Rate, kBlockRowsMax> places_{};
  Rate overall_;
};

// Chooses the width of every turn of one sequence so that speculation pays, and so that a draft
// that does not help costs next to nothing: what speculation may lose against plain decoding is
// bounded by an allowance, counted in plain steps, that grows slowly with the ids produced. Ids
// never depend on the choice. Confined to one thread.
class WidthPolicy {
 public:
  WidthPolicy(const CostTable& costs, std::uint32_t block_size);

  // Width of the next turn, at least 1 and at most `room`.
  std::uint32_t choose(std::uint32_t room) const;
  // What the turn gave: ids gained, next included, and how long it took.
  void observe(std::uint32_t width, std::uint32_t gained, double seconds) {
    observe(width, gained, seconds, {1, width, width > 1 ? 1u : 0u});
  }
  // The same for a turn in a batch; `seconds` are the whole batch's.
  void observe(std::uint32_t width, std::uint32_t gained, double seconds, const BatchShape& shape);

  // Mean seconds of a plain step beside the turns observed, from the table's proportions; 0 before
  // the first.
  double plain_step_s() const { return steps_ > 0 ? seconds_ / steps_ : 0.0; }
  // One line for people: costs in plain steps, the widths chosen, and why.
  std::string explain() const;

 private:
  friend class WidthChooser;
  double cost(std::uint32_t width) const;  // in plain steps
  // Plain steps that the next turn may lose.
  double allowance() const;

  const CostTable& costs_;
  std::uint32_t block_size_;
  SurvivalCurve survival_;
  double drift_ = 1.0;    // recent times over the table's
  double seconds_ = 0.0;  // of all turns
  double steps_ = 0.0;    // plain steps that they cost, by the table
  double balance_ = 0.0;  // plain steps that speculation has won (or lost, below 0) so far
  std::uint64_t ids_ = 0;
  std::uint64_t turns_ = 0;
  std::array<std::uint64_t, kBlockRowsMax + 1> chosen_{};
};

// One sequence's part in a joint choice.
struct WidthChoice {
  const WidthPolicy* policy = nullptr;  // null: the width stays what it is
  std::uint32_t room = 1;               // ids that the sequence may still gain
  std::uint32_t width = 1;              // in where there is no policy; otherwise out
};

// Chooses the widths of a batch together: those that promise most ids per second for the batch as a
// whole, where no sequence stakes more than its own policy allows. For a batch of one it is the
// policy's own choice. All policies have this cost table. Confined to one thread.
class WidthChooser {
 public:
  WidthChooser(const CostTable& costs, std::uint32_t block_size);

  void choose(std::span<WidthChoice> choices);

 private:
  struct Candidate {
    WidthChoice* choice;
    double allowance;
    double gain;           // of the widest turn there is room for
    std::uint32_t most;    // that width
    std::uint32_t width;   // in the plan that is being looked at
    std::size_t survival;  // first of its places in survival_
  };
  // Plans with proposals for the first `count` candidates; keeps the best one seen.
  void plan(std::size_t count);
  bool affordable(std::size_t count, double seconds) const;

  const CostTable& costs_;
  std::uint32_t block_size_;
  std::vector<Candidate> candidates_;
  std::vector<double> survival_;
  BatchShape base_;       // every sequence at its narrowest
  double base_gain_ = 0;  // ids of it
  double best_rate_ = 0;  // ids per second
};

}  // namespace drafthouse
