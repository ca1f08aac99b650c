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

void Candidates::Add(float score, const Box& box, int64_t class_id) {
  scores.push_back(score);
  boxes.push_back(box);
  classes.push_back(class_id);
}

Candidates Candidates::Chosen(const std::vector<size_t>& places) const {
  Candidates chosen;
  chosen.points_each = points_each;
  chosen.extras_each = extras_each;
  for (const size_t place : places) {
    chosen.Add(scores[place], boxes[place], classes[place]);
    chosen.points.insert(chosen.points.end(), PointsOf(place), PointsOf(place) + points_each);
    chosen.extras.insert(chosen.extras.end(), ExtrasOf(place), ExtrasOf(place) + extras_each);
  }
  return chosen;
}

Box Around(float x, float y, float width, float height) {
  return {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
}

std::vector<size_t> ByScore(const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

std::vector<std::vector<size_t>> Clusters(const Candidates& found, const Suppression& how) {
  std::vector<float> areas;
  for (const Box& box : found.boxes) areas.push_back(Area(box));
  std::vector<size_t> order = ByScore(found.scores);
  if (how.tie > 0) {
    std::vector<float> steps;
    for (const float score : found.scores) steps.push_back(std::nearbyint(score / how.tie));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return steps[a] != steps[b] ? steps[a] > steps[b] : areas[a] > areas[b];
    });
  }
  const auto threshold = static_cast<float>(how.iou_threshold);
  std::vector<std::vector<size_t>> groups;
  std::vector<bool> dropped(order.size());
  for (size_t i = 0; i < order.size() && groups.size() < how.most; ++i) {
    if (dropped[i]) continue;
    groups.push_back({order[i]});
    const Box& best = found.boxes[order[i]];
    for (size_t j = i + 1; j < order.size(); ++j) {
      if (dropped[j] || (how.class_aware && found.classes[order[i]] != found.classes[order[j]])) continue;
      const Box& other = found.boxes[order[j]];
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
  const std::vector<size_t> order = ByScore(found.scores);
  std::vector<Distribution> distributions;
  for (const size_t place : order) distributions.push_back(DistributionOf(found.boxes[place], *found.ExtrasOf(place)));
  std::vector<size_t> kept;
  for (size_t i = 0; i < order.size() && kept.size() < how.most; ++i) {
    bool stays = true;
    for (size_t j = 0; j < i && stays; ++j) {
      if (how.class_aware && found.classes[order[i]] != found.classes[order[j]]) continue;
      stays = !(Overlap(distributions[i], distributions[j]) > how.iou_threshold);
    }
    if (stays) kept.push_back(order[i]);
  }
  return kept;
}

}  // namespace agent
