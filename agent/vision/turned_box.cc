#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "vision/shapes.h"

namespace agent {
namespace {

// A point and its first and last place in a list of points.
struct Place {
  Pixel point;
  size_t first;
  size_t last;
};

std::vector<Place> Sorted(const std::vector<Pixel>& points) {
  std::map<std::pair<int, int>, Place> places;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [found, is_new] = places.try_emplace({points[i].x, points[i].y}, Place{points[i], i, i});
    if (!is_new) found->second.last = i;
  }
  std::vector<Place> sorted;
  for (const auto& each : places) sorted.push_back(each.second);
  return sorted;
}

// The half of the hull on one side of the line from the first to the last point; `side` is 1 or -1.
std::vector<Place> HalfHull(const std::vector<Place>& sorted, int side) {
  std::vector<Place> half;
  for (const Place& each : sorted) {
    const auto turns_back = [&] {
      const Pixel a = half[half.size() - 2].point;
      const Pixel b = half.back().point;
      const int64_t turn = static_cast<int64_t>(b.x - a.x) * (each.point.y - a.y) -
                           static_cast<int64_t>(b.y - a.y) * (each.point.x - a.x);
      return side * turn <= 0;
    };
    while (half.size() > 1 && turns_back()) half.pop_back();
    half.push_back(each);
  }
  return half;
}

// The corners of the points' hull, clockwise as an image is seen. Where the list goes around the hull already, or
// around it the other way, they begin with that which is first or last in the list, else with the rightmost one.
std::vector<Pixel> HullOf(const std::vector<Pixel>& points) {
  const std::vector<Place> sorted = Sorted(points);
  if (sorted.size() == 1) return {sorted.front().point};
  const std::vector<Place> upper = HalfHull(sorted, 1);
  const std::vector<Place> lower = HalfHull(sorted, -1);
  const auto y_before = [](const Place& a, const Place& b) { return a.point.y < b.point.y; };
  // Places in the list: of points that are there twice, the first one up to the turn of a half, and then the last.
  const auto places_of = [](const std::vector<Place>& half, auto turn) {
    std::vector<size_t> found;
    for (auto each = half.begin(); each != half.end(); ++each) found.push_back(each <= turn ? each->first : each->last);
    return found;
  };
  std::vector<size_t> places = places_of(upper, std::min_element(upper.begin(), upper.end(), y_before));
  const std::vector<size_t> back = places_of(lower, std::max_element(lower.begin(), lower.end(), y_before));
  places.insert(places.end(), back.rbegin() + 1, back.rend() - 1);
  const auto begin_with = [&](std::vector<size_t>::const_iterator start) {
    std::vector<size_t> turned(start, places.cend());
    turned.insert(turned.end(), places.cbegin(), start);
    return turned;
  };
  std::vector<size_t> ordered = begin_with(std::min_element(places.cbegin(), places.cend()));
  bool is_ordered = places.size() > 2 && std::is_sorted(ordered.begin(), ordered.end());
  if (!is_ordered) {
    ordered = begin_with(std::max_element(places.cbegin(), places.cend()));
    is_ordered = places.size() > 2 && std::is_sorted(ordered.rbegin(), ordered.rend());
  }
  if (!is_ordered) ordered = begin_with(places.cbegin() + static_cast<std::ptrdiff_t>(upper.size()) - 1);
  std::vector<Pixel> hull;
  for (const size_t place : ordered) hull.push_back(points[place]);
  return hull;
}

// A rectangle by its middle, the vectors along two sides that meet.
struct Sides {
  Point centre;
  Point width;
  Point height;
};

// Rotating calipers (Toussaint, 1983) around a hull of three corners at least: four lines around it turn from side to
// side of the hull, and each time one of them lies on a side, they are a rectangle.
class Calipers {
 public:
  explicit Calipers(const std::vector<Pixel>& hull) {
    const size_t count = hull.size();
    for (size_t i = 0; i < count; ++i) {
      const Pixel next = hull[(i + 1) % count];
      const double x = next.x - hull[i].x;
      const double y = next.y - hull[i].y;
      corners_.push_back({static_cast<float>(hull[i].x), static_cast<float>(hull[i].y)});
      sides_.push_back({static_cast<float>(x), static_cast<float>(y)});
      inverse_lengths_.push_back(static_cast<float>(1 / std::sqrt(x * x + y * y)));
    }
    const auto x_before = [](Pixel a, Pixel b) { return a.x < b.x; };
    const auto y_before = [](Pixel a, Pixel b) { return a.y < b.y; };
    const auto place = [&](auto found) { return static_cast<size_t>(found - hull.begin()); };
    touched_[kTop] = place(std::min_element(hull.begin(), hull.end(), y_before));
    touched_[kRight] = place(std::max_element(hull.begin(), hull.end(), x_before));
    touched_[kBottom] = place(std::max_element(hull.begin(), hull.end(), y_before));
    touched_[kLeft] = place(std::min_element(hull.begin(), hull.end(), x_before));
  }

  Sides Least() {
    float least_area = std::numeric_limits<float>::max();
    Sides least{};
    for (size_t i = 0; i < corners_.size(); ++i) {
      TurnToNextSide();
      const auto [area, sides] = Here();
      if (area > least_area) continue;
      least_area = area;
      least = sides;
    }
    return least;
  }

 private:
  // What the four lines touch, in the order in which they follow each other.
  enum Line : size_t { kTop, kRight, kBottom, kLeft, kLines };

  // The direction of a line, where the first one has that of `base_`.
  static Point Turned(Point base, size_t line) {
    switch (line) {
      case kTop:
        return base;
      case kRight:
        return {-base.y, base.x};
      case kBottom:
        return {-base.x, -base.y};
      default:
        return {base.y, -base.x};
    }
  }

  // Lets that line lie on the next side which has the least to turn.
  void TurnToNextSide() {
    size_t nearest = kTop;
    float most = 0;
    for (size_t line = kTop; line < kLines; ++line) {
      const size_t at = touched_[line];
      const Point direction = Turned(base_, line);
      const float cosine = (direction.x * sides_[at].x + direction.y * sides_[at].y) * inverse_lengths_[at];
      if (line > kTop && !(cosine > most)) continue;
      nearest = line;
      most = cosine;
    }
    const size_t at = touched_[nearest];
    const Point lead{sides_[at].x * inverse_lengths_[at], sides_[at].y * inverse_lengths_[at]};
    base_ = Turned(lead, (kLines - nearest) % kLines);
    touched_[nearest] = (at + 1) % corners_.size();
  }

  // The area between the lines as they lie, and the sides from where those at the left and at the top meet.
  std::pair<float, Sides> Here() const {
    const auto at = [&](Line line) { return corners_[touched_[line]]; };
    const Point along = base_;
    const Point normal{-base_.y, base_.x};
    const Point left = at(kLeft);
    const Point top = at(kTop);
    const Point across{at(kRight).x - left.x, at(kRight).y - left.y};
    const Point down{at(kBottom).x - top.x, at(kBottom).y - top.y};
    const float breadth = across.x * base_.x + across.y * base_.y;
    const float depth = -down.x * base_.y + down.y * base_.x;
    const float of_left = along.x * left.x + left.y * along.y;
    const float of_top = normal.x * top.x + top.y * normal.y;
    const float inverse = 1.0f / (along.x * normal.y - normal.x * along.y);
    const Point corner{(of_left * normal.y - of_top * along.y) * inverse,
                       (along.x * of_top - normal.x * of_left) * inverse};
    const Point width{along.x * breadth, along.y * breadth};
    const Point height{normal.x * depth, normal.y * depth};
    const Point centre{corner.x + (width.x + height.x) * 0.5f, corner.y + (width.y + height.y) * 0.5f};
    return {breadth * depth, {centre, width, height}};
  }

  std::vector<Point> corners_;
  std::vector<Point> sides_;
  std::vector<float> inverse_lengths_;
  size_t touched_[kLines];  // the corner at which each line touches the hull
  Point base_{1, 0};
};

float LengthOf(Point vector) {
  const double x = vector.x;
  const double y = vector.y;
  return static_cast<float>(std::sqrt(x * x + y * y));
}

// The sides of what may be no more than a line.
Sides SidesAround(const std::vector<Pixel>& hull) {
  if (hull.size() > 2) return Calipers(hull).Least();
  const Pixel first = hull.front();
  const Pixel last = hull.back();
  const Point centre{static_cast<float>(first.x + last.x) * 0.5f, static_cast<float>(first.y + last.y) * 0.5f};
  return {centre, {static_cast<float>(last.x - first.x), static_cast<float>(last.y - first.y)}, {0, 0}};
}

// The pixels of a line (Bresenham, 1965), drawn from the left.
template <typename Visit>
void EachPixel(Pixel from, Pixel to, const Visit& visit) {
  if (to.x < from.x) std::swap(from, to);
  const int down = to.y < from.y ? -1 : 1;
  const int64_t width = to.x - from.x;
  const int64_t height = std::abs(static_cast<int64_t>(to.y) - from.y);
  const bool is_flat = width >= height;
  const int64_t longer = is_flat ? width : height;
  const int64_t shorter = is_flat ? height : width;
  int64_t error = longer - 2 * shorter;
  Pixel place = from;
  for (int64_t i = 0; i <= longer; ++i) {
    visit(place);
    const bool both = error < 0;
    error += (both ? 2 * longer : 0) - 2 * shorter;
    if (is_flat || both) ++place.x;
    if (!is_flat || both) place.y += down;
  }
}

}  // namespace

TurnedBox LeastBoxAround(const std::vector<Pixel>& points) {
  const Sides sides = SidesAround(HullOf(points));
  float width = LengthOf(sides.width);
  float height = LengthOf(sides.height);
  double degrees = std::atan2(static_cast<double>(sides.width.y), static_cast<double>(sides.width.x)) * 180 / kPi;
  for (; degrees >= 0; degrees -= 90) std::swap(width, height);
  for (; degrees < -90; degrees += 90) std::swap(width, height);
  const double angle = static_cast<double>(static_cast<float>(degrees)) * kPi / 180;
  const float b = static_cast<float>(std::cos(angle)) * 0.5f;
  const float a = static_cast<float>(std::sin(angle)) * 0.5f;
  const Point centre = sides.centre;
  TurnedBox box;
  box.corners = {{{centre.x - a * height - b * width, centre.y + b * height - a * width},
                  {centre.x + a * height - b * width, centre.y - b * height - a * width},
                  {centre.x + a * height + b * width, centre.y - b * height + a * width},
                  {centre.x - a * height + b * width, centre.y + b * height + a * width}}};
  box.shorter_side = std::min(width, height);
  return box;
}

Filled FilledBetween(const std::array<Pixel, 4>& corners) {
  const auto y_before = [](Pixel a, Pixel b) { return a.y < b.y; };
  const auto [top, bottom] = std::minmax_element(corners.begin(), corners.end(), y_before);
  Filled filled{top->y, std::vector<std::pair<int, int>>(static_cast<size_t>(bottom->y - top->y) + 1,
                                                         std::make_pair(INT_MAX, INT_MIN))};
  for (size_t i = 0; i < corners.size(); ++i) {
    EachPixel(corners[i], corners[(i + 1) % corners.size()], [&](Pixel place) {
      auto& [first, last] = filled.rows[static_cast<size_t>(place.y - filled.top)];
      first = std::min(first, place.x);
      last = std::max(last, place.x);
    });
  }
  return filled;
}

}  // namespace agent
