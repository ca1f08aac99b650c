// Text: its regions in an image, and the characters of a line (edgedeploy/vision/decoders/text.py).
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "vision/decoder.h"
#include "vision/shapes.h"

namespace agent {
namespace {

// The shortest side of a shape's rectangle, and of one that has grown, in pixels of the network.
constexpr float kShortest = 3;
constexpr float kShortestGrown = 5;
// Sides of regions are longer than this, in pixels of the image.
constexpr int kNoise = 3;
// Regions whose first corners differ by less along y, in pixels of the image, lie side by side.
constexpr float kSameLine = 10;
// How far the chords of a rounded corner may be from its arc, in pixels: that of the Clipper library.
constexpr double kArcTolerance = 0.25;

using Corners = std::array<Point, 4>;

// To the nearest whole number, halves away from zero.
int Rounded(double value) { return static_cast<int>(value + std::copysign(0.5, value)); }

// Four corners, the first one the upper of the two at the left, then clockwise as an image is seen.
Corners Clockwise(Corners corners) {
  std::stable_sort(corners.begin(), corners.end(), [](Point a, Point b) { return a.x < b.x; });
  if (corners[1].y < corners[0].y) std::swap(corners[0], corners[1]);
  if (corners[3].y < corners[2].y) std::swap(corners[2], corners[3]);
  return {corners[0], corners[2], corners[3], corners[1]};
}

// Points whose hull is a rectangle with sides that have moved out by area x `ratio` / perimeter.
std::vector<Pixel> Grown(const Corners& corners, double ratio) {
  struct Place {
    double x;
    double y;
  };
  const size_t count = corners.size();
  double area = 0;
  double perimeter = 0;
  std::vector<Place> whole;
  for (size_t i = 0; i < count; ++i) {
    const Place here{corners[i].x, corners[i].y};
    const Place next{corners[(i + 1) % count].x, corners[(i + 1) % count].y};
    const Place before{corners[(i + count - 1) % count].x, corners[(i + count - 1) % count].y};
    area += here.x * (next.y - before.y);
    perimeter += std::sqrt((next.x - here.x) * (next.x - here.x) + (next.y - here.y) * (next.y - here.y));
    const Place cut{std::trunc(here.x), std::trunc(here.y)};
    if (std::trunc(before.x) != cut.x || std::trunc(before.y) != cut.y) whole.push_back(cut);
  }
  const double distance = 0.5 * std::fabs(area) * ratio / perimeter;
  std::vector<double> normals;
  for (size_t i = 0; i < whole.size(); ++i) {
    const Place& next = whole[(i + 1) % whole.size()];
    // Outward ones as angles: y points down, so that clockwise turns are positive.
    normals.push_back(std::atan2(-(next.x - whole[i].x), next.y - whole[i].y));
  }
  const double tolerance = std::min(kArcTolerance, 0.25 * distance);
  const double per_circle = std::min(kPi / std::acos(1 - tolerance / distance), kPi * distance);
  std::vector<Pixel> points;
  for (size_t i = 0; i < whole.size(); ++i) {
    const double before = normals[(i + whole.size() - 1) % whole.size()];
    double turn = std::fmod(normals[i] - before + kPi, 2 * kPi);
    turn = (turn < 0 ? turn + 2 * kPi : turn) - kPi;
    const int steps = std::max(1, Rounded(per_circle * std::fabs(turn) / (2 * kPi)));
    for (int step = 0; step <= steps; ++step) {
      const double angle = step < steps ? before + step * (2 * kPi / per_circle) : normals[i];
      points.push_back(
          {Rounded(whole[i].x + distance * std::cos(angle)), Rounded(whole[i].y + distance * std::sin(angle))});
    }
  }
  // The topmost point is the last one, of several the rightmost: the last bits of their rectangle depend on that.
  const auto topmost = std::min_element(points.begin(), points.end(),
                                        [](Pixel a, Pixel b) { return a.y != b.y ? a.y < b.y : a.x > b.x; });
  if (topmost != points.end()) std::rotate(points.begin(), topmost + 1, points.end());
  return points;
}

// The mean of the values in a rectangle, whose corners are cut off to whole pixels.
double MeanWithin(const Planes& map, const Corners& corners) {
  const Box box = Around(corners);
  const auto clipped = [](float value, int64_t size) {
    return static_cast<int>(std::min(std::max(value, 0.0f), static_cast<float>(size - 1)));
  };
  const int left = clipped(std::floor(box.x1), map.columns);
  const int right = clipped(std::ceil(box.x2), map.columns);
  const int top = clipped(std::floor(box.y1), map.rows);
  const int bottom = clipped(std::ceil(box.y2), map.rows);
  std::array<Pixel, 4> inside;
  for (size_t i = 0; i < corners.size(); ++i) {
    inside[i] = {static_cast<int>(corners[i].x - static_cast<float>(left)),
                 static_cast<int>(corners[i].y - static_cast<float>(top))};
  }
  const Filled filled = FilledBetween(inside);
  double sum = 0;
  int64_t count = 0;
  for (size_t row = 0; row < filled.rows.size(); ++row) {
    const int y = top + filled.top + static_cast<int>(row);
    if (y < top || y > bottom) continue;
    const int last = std::min(left + filled.rows[row].second, right);
    for (int x = std::max(left + filled.rows[row].first, left); x <= last; ++x, ++count) {
      sum += static_cast<double>(map.values[y * map.columns + x]);
    }
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

// Corners in pixels of the network as whole pixels within the image.
Corners InImage(const Corners& corners, const Frame& frame) {
  const auto moved = [](float place, int network, int image) {
    const float there = std::nearbyint(place / static_cast<float>(network) * static_cast<float>(image));
    return std::min(std::max(there, 0.0f), static_cast<float>(image));
  };
  Corners there;
  for (size_t i = 0; i < corners.size(); ++i) {
    there[i] = {moved(corners[i].x, frame.network.width, frame.image.width),
                moved(corners[i].y, frame.network.height, frame.image.height)};
  }
  there = Clockwise(there);
  for (Point& each : there) {
    each = {std::min(each.x, static_cast<float>(frame.image.width - 1)),
            std::min(each.y, static_cast<float>(frame.image.height - 1))};
  }
  return there;
}

// How many whole pixels one corner is from another.
int Length(Point from, Point to) {
  return static_cast<int>(std::sqrt((from.x - to.x) * (from.x - to.x) + (from.y - to.y) * (from.y - to.y)));
}

// By the first corner: from the top, and from the left among neighbours in a line.
void OrderAsRead(std::vector<Detection>& regions) {
  const auto is_above = [](const Detection& a, const Detection& b) {
    const auto [one, other] = std::make_pair(a.corners->front(), b.corners->front());
    return std::make_pair(one.y, one.x) < std::make_pair(other.y, other.x);
  };
  std::stable_sort(regions.begin(), regions.end(), is_above);
  const auto goes_before = [](const Detection& a, const Detection& b) {
    const auto [one, other] = std::make_pair(a.corners->front(), b.corners->front());
    return std::fabs(one.y - other.y) < kSameLine && one.x < other.x;
  };
  for (size_t i = 1; i < regions.size(); ++i) {
    for (size_t j = i; j > 0 && goes_before(regions[j], regions[j - 1]); --j) std::swap(regions[j], regions[j - 1]);
  }
}

// Lines of text from a map of probabilities: Differentiable Binarization.
class TextRegions : public Decoder {
 public:
  explicit TextRegions(Fields& fields) {
    fields.Read("pixel_threshold", &pixel_threshold_, kFraction);
    fields.Read("threshold", &threshold_, kFraction);
    fields.Read("unclip", &unclip_, Limits{0, 10, true});
    fields.Read("dilate", &dilate_);
    fields.Read("candidates", &candidates_, kCount);
  }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const Planes map = outputs.PlanesOf(outputs.FirstOr({}).name, 1);
    std::vector<std::vector<Pixel>> borders =
        BordersOf(Shapes(map), {static_cast<int>(map.rows), static_cast<int>(map.columns)});
    borders.resize(std::min(borders.size(), candidates_));
    std::vector<Detection> regions;
    for (const std::vector<Pixel>& border : borders) {
      if (std::optional<Detection> region = RegionOf(map, border, frame)) regions.push_back(std::move(*region));
    }
    OrderAsRead(regions);
    for (Detection& each : regions) each.label = labels.empty() ? "text" : labels.front();
    return regions;
  }

 private:
  // Which pixels are text, by 1 and 0; dilated, also those whose left, upper or upper left neighbour is.
  std::vector<uint8_t> Shapes(const Planes& map) const {
    std::vector<uint8_t> mask(static_cast<size_t>(map.area()));
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = map.values[i] > pixel_threshold_;
    if (!dilate_) return mask;
    const auto columns = static_cast<size_t>(map.columns);
    for (size_t i = mask.size(); i-- > 0;) {  // from the end, so that neighbours are as they were
      const bool has_left = i % columns > 0;
      const bool has_above = i >= columns;
      mask[i] = mask[i] || (has_left && mask[i - 1]) || (has_above && mask[i - columns]) ||
                (has_left && has_above && mask[i - columns - 1]);
    }
    return mask;
  }

  // What a border encloses, in pixels of the image; nothing if it is not text.
  std::optional<Detection> RegionOf(const Planes& map, const std::vector<Pixel>& border, const Frame& frame) const {
    const TurnedBox shape = LeastBoxAround(border);
    if (shape.shorter_side < kShortest) return std::nullopt;
    const Corners corners = Clockwise(shape.corners);
    const double score = MeanWithin(map, corners);
    if (score < threshold_) return std::nullopt;
    const std::vector<Pixel> points = Grown(corners, unclip_);
    if (points.empty()) return std::nullopt;
    const TurnedBox grown = LeastBoxAround(points);
    if (grown.shorter_side < kShortestGrown) return std::nullopt;
    const Corners there = InImage(Clockwise(grown.corners), frame);
    if (std::min(Length(there[0], there[1]), Length(there[0], there[3])) <= kNoise) return std::nullopt;
    Detection region;
    region.score = static_cast<float>(score);
    region.corners = there;
    region.box = Around(there);
    return region;
  }

  float pixel_threshold_ = 0.3f;
  double threshold_ = 0.5;
  double unclip_ = 1.6;
  bool dilate_ = true;
  size_t candidates_ = 1000;
};

// Lines as `splitlines` of Python tells them apart.
std::vector<std::string> LinesOf(std::string_view text) {
  constexpr std::string_view kEnds[] = {"\r\n", "\n",   "\r",       "\v",           "\f",          "\x1c",
                                        "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto end = std::find_if(std::begin(kEnds), std::end(kEnds),
                                  [&](std::string_view each) { return text.substr(at, each.size()) == each; });
    if (end == std::end(kEnds)) {
      ++at;
      continue;
    }
    lines.emplace_back(text.substr(begin, at - begin));
    begin = at += end->size();
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

// The text in an image of one line, by connectionist temporal classification.
class TextLine : public Decoder {
 public:
  explicit TextLine(Fields& fields) { fields.Read("threshold", &threshold_, kFraction); }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame&, const Labels& labels) const override {
    const Table steps = outputs.TableOf(outputs.FirstOr({}).name);
    if (steps.columns == 0) throw NotOfThisKind("it gives no characters");
    Detection result;
    double sum = 0;
    int64_t count = 0;
    int64_t before = -1;
    for (int64_t step = 0; step < steps.rows; ++step) {
      const Best best = BestOf(steps.Row(step), steps.columns);
      if (best.index != 0 && best.index != before) {  // 0 is the blank
        const auto character = static_cast<size_t>(best.index - 1);
        result.label += character == labels.size() ? " " : LabelOf(labels, best.index - 1);
        sum += static_cast<double>(best.value);
        ++count;
      }
      before = best.index;
    }
    if (count == 0 || !(sum / static_cast<double>(count) >= threshold_)) return {};
    result.score = static_cast<float>(sum / static_cast<double>(count));
    return {result};
  }

 private:
  double threshold_ = 0.5;
};

Fitted MakeTextLine(Fields& fields, const Described& network) {
  Fitted fitted{std::make_unique<TextLine>(fields)};
  for (const auto& [key, text] : network.metadata) {
    if (key == "character") fitted.labels = LinesOf(text);
  }
  return fitted;
}

}  // namespace

Kinds TextDecoders() { return {{"text-line", MakeTextLine}, {"text-regions", Made<TextRegions>}}; }

}  // namespace agent
