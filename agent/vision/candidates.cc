#include "vision/candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace agent {
namespace {

float Area(const Box& box) { return (box.x2 - box.x1) * (box.y2 - box.y1); }

// A normal distribution: its centre, the variances along x and y, and the covariance.
struct Distribution {
  double x;
  double y;
  double a;
  double b;
  double c;
};

Distribution DistributionOf(const Box& box, double angle) {
  const double width = box.x2 * static_cast<double>(box.x2) / 12;
  const double height = box.y2 * static_cast<double>(box.y2) / 12;
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  return {box.x1, box.y1, width * cosine * cosine + height * sine * sine,
          width * sine * sine + height * cosine * cosine, (width - height) * cosine * sine};
}

// One minus the Hellinger distance of two distributions, as Ultralytics computes it.
double Overlap(const Distribution& one, const Distribution& other) {
  constexpr double kTiny = 1e-7;  // of the reference: it bounds what is divided by
  const double a = one.a + other.a;
  const double b = one.b + other.b;
  const double c = one.c + other.c;
  const double across = other.x - one.x;
  const double down = other.y - one.y;
  const double determinant = a * b - c * c;
  const double means = (a * down * down + b * across * across - 2 * c * across * down) / (determinant + kTiny) / 4;
  const double each =
      std::max(one.a * one.b - one.c * one.c, 0.0) * std::max(other.a * other.b - other.c * other.c, 0.0);
  const double spreads = std::log(determinant / (4 * std::sqrt(each) + kTiny) + kTiny) / 2;
  const double distance = std::min(std::max(means + spreads, kTiny), 100.0);
  return 1 - std::sqrt(1 - std::exp(-distance) + kTiny);
}

}  // namespace

Candidates Chosen(const Candidates& found, const std::vector<size_t>& places) {
  Candidates chosen;
  for (const size_t place : places) chosen.push_back(found[place]);
  return chosen;
}

Box Around(float x, float y, float width, float height) {
  return {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
}

std::vector<size_t> ByScore(const Candidates& found) {
  std::vector<size_t> order(found.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return found[a].score > found[b].score; });
  return order;
}

std::vector<std::vector<size_t>> Clusters(const Candidates& found, const Suppression& how) {
  std::vector<float> areas;
  std::vector<float> steps;
  for (const Candidate& each : found) {
    areas.push_back(Area(each.box));
    steps.push_back(how.tie > 0 ? std::nearbyint(each.score / how.tie) : each.score);
  }
  std::vector<size_t> order(found.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return steps[a] != steps[b] ? steps[a] > steps[b] : how.tie > 0 && areas[a] > areas[b];
  });
  const auto threshold = static_cast<float>(how.iou_threshold);
  std::vector<std::vector<size_t>> groups;
  std::vector<bool> dropped(order.size());
  for (size_t i = 0; i < order.size() && groups.size() < how.most; ++i) {
    if (dropped[i]) continue;
    groups.push_back({order[i]});
    const Box& best = found[order[i]].box;
    for (size_t j = i + 1; j < order.size(); ++j) {
      if (dropped[j] || (how.class_aware && found[order[i]].class_id != found[order[j]].class_id)) continue;
      const Box& other = found[order[j]].box;
      const float width = std::max(std::min(best.x2, other.x2) - std::max(best.x1, other.x1), 0.0f);
      const float height = std::max(std::min(best.y2, other.y2) - std::max(best.y1, other.y1), 0.0f);
      const float intersection = width * height;
      const float both = areas[order[i]] + areas[order[j]] - intersection;
      // Multiplied out, so that two empty boxes do not divide by zero.
      dropped[j] = !(intersection <= threshold * both);
      if (dropped[j]) groups.back().push_back(order[j]);
    }
  }
  return groups;
}

std::vector<size_t> Suppressed(const Candidates& found, const Suppression& how) {
  std::vector<size_t> kept;
  for (const std::vector<size_t>& group : Clusters(found, how)) kept.push_back(group.front());
  return kept;
}

std::vector<size_t> SuppressedTurned(const Candidates& found, const Suppression& how) {
  const std::vector<size_t> order = ByScore(found);
  std::vector<Distribution> distributions;
  for (const size_t place : order)
    distributions.push_back(DistributionOf(found[place].box, found[place].extras.front()));
  std::vector<size_t> kept;
  for (size_t i = 0; i < order.size() && kept.size() < how.most; ++i) {
    bool stays = true;
    for (size_t j = 0; j < i && stays; ++j) {
      if (how.class_aware && found[order[i]].class_id != found[order[j]].class_id) continue;
      stays = !(Overlap(distributions[i], distributions[j]) > how.iou_threshold);
    }
    if (stays) kept.push_back(order[i]);
  }
  return kept;
}

}  // namespace agent
