// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/contention.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/median.h"
#include "spdkfac/comm/rank_values.h"

namespace spdkfac::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

// Long compared with a time slice of the scheduler, short enough to be repeated.
constexpr double kLoopSeconds = 0.2;
// Several messages in a loop, so that their starts count too.
constexpr double kMessageSeconds = kLoopSeconds / 4;
constexpr int kMessagesUnderWay = 4;
constexpr double kMostMessages = 2000;
// About a millisecond of products and of passes through memory, as steps have both: messages, which
// are copied, slow the second more. In between the host looks after the messages.
constexpr std::int64_t kDimOnCpu = 256;
constexpr std::int64_t kDimOnGpu = 4096;
constexpr std::int64_t kPassOnCpu = 1 << 20;
constexpr std::int64_t kPassOnGpu = 1 << 24;
constexpr double kMostProducts = 1000;
constexpr double kSlowestRate = 0.01;

Seconds since(Clock::time_point begin) {
  return Seconds(std::chrono::duration<double>(Clock::now() - begin).count());
}

class Products {
 public:
  explicit Products(c10::Device device) : device_(device) {
    const std::int64_t dim = device.is_cpu() ? kDimOnCpu : kDimOnGpu;
    left_ = at::full({dim, dim}, 0.5, at::TensorOptions().device(device));
    right_ = at::full({dim, dim}, 0.25, left_.options());
    out_ = at::empty_like(left_);
    passed_ = at::ones({device.is_cpu() ? kPassOnCpu : kPassOnGpu}, left_.options());
  }
  void run() {
    at::mm_out(out_, left_, right_);
    passed_.mul_(1);
    wait_for_device(device_);
  }

 private:
  c10::Device device_;
  at::Tensor left_;
  at::Tensor right_;
  at::Tensor out_;
  at::Tensor passed_;
};

// A fixed number of all-reduces, the same on all ranks, a few of them under way at a time.
class Messages {
 public:
  Messages(const Bench& bench, std::int64_t elements, int count)
      : communicator_(bench.communicator), left_(count) {
    for (int i = 0; i < kMessagesUnderWay; ++i) {
      free_.push_back(at::zeros({elements}, at::TensorOptions().device(bench.device)));
    }
  }
  // Starts what can be started; whether any are under way.
  bool keep_going() {
    while (!under_way_.empty() && under_way_.front().work.done()) end_first();
    while (left_ > 0 && !free_.empty()) {
      under_way_.push_back({free_.front(), communicator_.all_reduce_async(
                                               free_.front(), "calibrate: during computation")});
      free_.pop_front();
      --left_;
    }
    return !under_way_.empty();
  }
  void drain() {
    while (keep_going()) end_first();
  }

 private:
  struct Entry {
    at::Tensor tensor;
    Work work;
  };
  void end_first() {
    under_way_.front().work.wait();
    free_.push_back(under_way_.front().tensor);
    under_way_.pop_front();
  }

  Communicator& communicator_;
  int left_;
  std::deque<at::Tensor> free_;
  std::deque<Entry> under_way_;
};

struct Loop {
  int products = 1;
  int messages = 0;
  std::int64_t elements = 1;
};

// When each was over.
struct LoopTimes {
  Seconds products;
  Seconds messages;
};

LoopTimes run_loop(const Bench& bench, Products& products, const Loop& loop) {
  Messages messages(bench, loop.elements, loop.messages);
  bench.communicator.barrier("calibrate: loop");
  const auto begin = Clock::now();
  LoopTimes times;
  bool busy = messages.keep_going();
  for (int i = 0; i < loop.products; ++i) {
    products.run();
    if (!busy) continue;
    busy = messages.keep_going();
    if (!busy) times.messages = since(begin);
  }
  times.products = since(begin);
  messages.drain();
  if (busy) times.messages = since(begin);
  if (bench.advance) bench.advance();
  return times;
}

Loop choose_loop(const Bench& bench, Products& products,
                 std::span<const plan::Measurement> all_reduce) {
  const Task product{.name = "product", .run = [&products] { products.run(); }, .calls = 20};
  const Bench quiet{bench.communicator, bench.device};
  const Seconds one = measure(quiet, std::span(&product, 1), 1).front();
  Loop loop;
  loop.products = static_cast<int>(std::clamp(kLoopSeconds / one.value(), 1.0, kMostProducts));
  plan::Measurement message = all_reduce.front();
  for (const plan::Measurement& candidate : all_reduce) {
    if (candidate.time.value() <= kMessageSeconds) message = candidate;
  }
  loop.elements = std::llround(message.size);
  // About as long as the products; rate_while_busy() knows what to do when either ends first.
  loop.messages = static_cast<int>(
      std::clamp(std::ceil(kLoopSeconds / message.time.value()), 1.0, kMostMessages));
  return loop;
}

}  // namespace

double rate_while_busy(Seconds alone, Seconds together, Seconds busy) {
  if (busy.value() <= 0) return 1;
  // rate·busy + (together − busy) = alone
  const double rate = (alone - together + busy) / busy;
  return std::clamp(rate, kSlowestRate, 1.0);
}

class ContentionMeter::Impl {
 public:
  Impl(const Bench& bench, std::span<const plan::Measurement> all_reduce)
      : bench_(bench), products_(bench.device), loop_(choose_loop(bench, products_, all_reduce)) {}

  void round() {
    const Loop only_products{.products = loop_.products};
    const Loop only_messages{.products = 0, .messages = loop_.messages, .elements = loop_.elements};
    const Seconds computing = run_loop(bench_, products_, only_products).products;
    const Seconds sending = run_loop(bench_, products_, only_messages).messages;
    const LoopTimes both = run_loop(bench_, products_, loop_);
    // Ranks that share a core are not through at the same time; all are when the last one is.
    const std::vector<double> last = comm::largest_of_ranks(
        bench_.communicator, bench_.device,
        {computing.value(), sending.value(), both.products.value(), both.messages.value()});
    if (!std::exchange(warm_, true)) return;
    const Seconds together(std::min(last[2], last[3]));
    computation_.push_back(rate_while_busy(Seconds(last[0]), Seconds(last[2]), together));
    communication_.push_back(rate_while_busy(Seconds(last[1]), Seconds(last[3]), together));
  }

  RatesTogether rates() const {
    SPDKFAC_CHECK(!computation_.empty(), "no round but the first");
    return {median(computation_), median(communication_)};
  }

 private:
  Bench bench_;
  Products products_;
  Loop loop_;
  bool warm_ = false;
  std::vector<double> computation_;
  std::vector<double> communication_;
};

ContentionMeter::ContentionMeter(const Bench& bench,
                                 std::span<const plan::Measurement> all_reduce) {
  SPDKFAC_CHECK(!all_reduce.empty(), "nothing to keep the channel busy with");
  impl_ = std::make_unique<Impl>(bench, all_reduce);
}
ContentionMeter::~ContentionMeter() = default;

void ContentionMeter::round() { impl_->round(); }
RatesTogether ContentionMeter::rates() const { return impl_->rates(); }

Seconds ContentionMeter::estimate(int rounds) { return Seconds(4 * kLoopSeconds * rounds); }
std::size_t ContentionMeter::samples(int rounds) { return 3 * static_cast<std::size_t>(rounds); }

}  // namespace spdkfac::calibrate
