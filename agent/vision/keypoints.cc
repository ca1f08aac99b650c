// Key points: BlazeFace and its relatives, MediaPipe's landmark networks, and PFLD's faces
// (edgedeploy/vision/decoders/keypoints.py).
#include <algorithm>
#include <cmath>
#include <limits>

#include "vision/decoder.h"

namespace agent {
namespace {

struct AnchorLevel {
  int64_t stride;
  int64_t anchors = 1;
};

void ReadFields(Fields& fields, AnchorLevel* level) {
  fields.Require("stride", &level->stride, kStride);
  fields.Read("anchors", &level->anchors, Limits{1, 64});
}

class Blaze : public BoxDecoder {
 public:
  explicit Blaze(Fields& fields) : BoxDecoder(fields, {0.5f, 0.3, false}) {
    std::string name = "face";
    fields.Require("scores", &scores_);
    fields.Require("boxes", &boxes_);
    fields.Require("points", &points_, Limits{0, 1024});
    fields.Require("levels", &levels_, Levels());
    fields.Read("name", &name);
    SetNames({name});
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    int64_t count = 0;
    for (const AnchorLevel& level : levels_) count += CellCount(frame.network, {level.stride}) * level.anchors;
    const Table values = outputs.TableOf(boxes_, count, 4 + 2 * points_);
    const Table scores = outputs.TableOf(scores_, count, 1);
    Candidates found;
    int64_t row = 0;
    const auto add = [&](float x, float y) {
      const float score = Sigmoid(*scores.Row(row));
      const float* value = values.Row(row++);
      if (!Reaches(score) || !(value[2] >= 0 && value[3] >= 0)) return;
      found.push_back({score, Around(x + value[0], y + value[1], value[2], value[3])});
      for (int64_t i = 0; i < points_; ++i) {
        found.back().points.push_back({x + value[4 + 2 * i], y + value[5 + 2 * i]});
      }
    };
    for (const AnchorLevel& level : levels_) {
      const Size grid = GridSize(frame.network, level.stride);
      const auto step_x = static_cast<float>(static_cast<double>(frame.network.width) / grid.width);
      const auto step_y = static_cast<float>(static_cast<double>(frame.network.height) / grid.height);
      EachCell(frame.network, {level.stride}, [&](int64_t, float x, float y, size_t) {
        for (int64_t i = 0; i < level.anchors; ++i) add((x + 0.5f) * step_x, (y + 0.5f) * step_y);
      });
    }
    return found;
  }

  // One for each group of those that overlap: means of its boxes and points, weighted with the scores.
  Candidates Reduced(const Candidates& found) const override {
    Candidates means;
    for (const std::vector<size_t>& group : Clusters(found, suppression())) {
      float sum = 0;
      for (const size_t place : group) sum += found[place].score;
      Candidate mean{found[group.front()].score, {}, 0, std::vector<Point>(static_cast<size_t>(points_))};
      for (const size_t place : group) {
        const float weight = found[place].score / sum;
        const auto [x1, y1, x2, y2] = found[place].box;
        mean.box.x1 += weight * x1;
        mean.box.y1 += weight * y1;
        mean.box.x2 += weight * x2;
        mean.box.y2 += weight * y2;
        for (size_t i = 0; i < mean.points.size(); ++i) {
          mean.points[i].x += weight * found[place].points[i].x;
          mean.points[i].y += weight * found[place].points[i].y;
        }
      }
      means.push_back(std::move(mean));
    }
    return means;
  }

 private:
  std::string scores_;
  std::string boxes_;
  int64_t points_ = 0;
  std::vector<AnchorLevel> levels_;
};

// Landmarks of one face that fills the image.
class Landmark : public Decoder {
 public:
  // More points than these are not a face's: twice as many values do not overflow.
  explicit Landmark(Fields& fields) { fields.Require("points", &points_, Limits{1, 1 << 20}); }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    std::string shapes;
    for (const Outputs::Output& output : outputs.all()) {
      shapes += (shapes.empty() ? "" : ", ") + output.name + " " + Shown(output.shape);
      if (output.values.size() != 2 * points_) continue;
      Detection result;
      result.label = LabelOf(labels.empty() ? Labels{"face"} : labels, 0);
      const auto width = static_cast<float>(frame.network.width);
      const auto height = static_cast<float>(frame.network.height);
      for (size_t i = 0; i < points_; ++i) {
        result.points.push_back(frame.ToImage(Point{output.values[2 * i] * width, output.values[2 * i + 1] * height}));
      }
      return {result};
    }
    throw NotOfThisKind("none of its outputs holds " + std::to_string(2 * points_) + " values: " + shapes);
  }

 private:
  size_t points_ = 0;
};

constexpr Limits kIndex{0, (1 << 16) - 1};

struct Place {
  double x;
  double y;
};

size_t LargestOf(const std::vector<size_t>& indices) { return *std::max_element(indices.begin(), indices.end()); }

// An output that shows where each point is: the point moves to the mean of the places around it.
struct Heatmap {
  std::string output;
  int kernel = 7;
  float threshold = 0.5f;
};

void ReadFields(Fields& fields, Heatmap* heatmap) {
  fields.Require("output", &heatmap->output);
  fields.Read("kernel", &heatmap->kernel, Limits{1, 255});
  fields.Read("threshold", &heatmap->threshold, kFraction);
}

// An output that knows some points better, and may add some.
struct Refinement {
  std::string output;
  std::vector<size_t> points;
  std::optional<std::vector<size_t>> depth_of;  // whose mean depth is that of the added ones
};

void ReadFields(Fields& fields, Refinement* refinement) {
  fields.Require("output", &refinement->output);
  fields.Require("points", &refinement->points, OneOrMore(kIndex));
  fields.Read("depth_of", &refinement->depth_of, OneOrMore(kIndex));
}

float Single(const Outputs& outputs, const std::string& name) {
  const Outputs::Output& output = outputs.At(name);
  if (output.values.size() != 1) throw output.IsNot("one value");
  return output.values.front();
}

void Refine(const Heatmap& heatmap, const Outputs& outputs, Size network, std::vector<Place>& places) {
  const Outputs::Output& heat = outputs.At(heatmap.output);
  const auto count = static_cast<int64_t>(places.size());
  if (heat.shape.size() != 4 || heat.shape[0] != 1 || heat.shape[3] != count) {
    throw heat.IsNot("1xHxWx" + std::to_string(count));
  }
  const int64_t rows = heat.shape[1];
  const int64_t columns = heat.shape[2];
  const double step_x = static_cast<double>(network.width) / static_cast<double>(columns);
  const double step_y = static_cast<double>(network.height) / static_cast<double>(rows);
  const int reach = (heatmap.kernel - 1) / 2;
  for (int64_t index = 0; index < count; ++index) {
    const Place place{places[index].x / step_x, places[index].y / step_y};
    if (!(place.x > -1 && place.y > -1 && place.x < static_cast<double>(columns) &&
          place.y < static_cast<double>(rows))) {
      continue;
    }
    const auto column = static_cast<int64_t>(place.x);
    const auto row = static_cast<int64_t>(place.y);
    double sum = 0;
    double sum_x = 0;
    double sum_y = 0;
    double most = 0;
    for (int64_t y = std::max<int64_t>(0, row - reach); y < std::min(rows, row + reach + 1); ++y) {
      for (int64_t x = std::max<int64_t>(0, column - reach); x < std::min(columns, column + reach + 1); ++x) {
        const double near = Sigmoid(static_cast<double>(heat.values[(y * columns + x) * count + index]));
        sum += near;
        sum_x += near * static_cast<double>(x);
        sum_y += near * static_cast<double>(y);
        most = std::isnan(near) || near > most ? near : most;
      }
    }
    if (most >= heatmap.threshold && !std::isnan(sum)) places[index] = {sum_x / sum * step_x, sum_y / sum * step_y};
  }
}

void Refine(const Refinement& refinement, const Outputs& outputs, std::vector<Place>& places,
            std::vector<double>& depths) {
  const Outputs::Output& better = outputs.At(refinement.output);
  const size_t count = refinement.points.size();
  const bool known = !refinement.depth_of || LargestOf(*refinement.depth_of) < depths.size();
  if (better.values.size() != 2 * count || LargestOf(refinement.points) >= places.size() + count || !known) {
    throw NotOfThisKind("its output '" + refinement.output + "' is " + Shown(better.shape) + ", which does not suit " +
                        std::to_string(count) + " points");
  }
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double depth = kUnknown;
  if (refinement.depth_of) {
    depth = 0;
    for (const size_t place : *refinement.depth_of) depth += depths[place];
    depth /= static_cast<double>(refinement.depth_of->size());
  }
  const size_t all = std::max(places.size(), LargestOf(refinement.points) + 1);
  places.resize(all, {kUnknown, kUnknown});
  depths.resize(all, depth);
  for (size_t i = 0; i < count; ++i) places[refinement.points[i]] = {better.values[2 * i], better.values[2 * i + 1]};
}

// Points of a face, a hand or a person in a crop.
class Landmarks : public Decoder {
 public:
  explicit Landmarks(Fields& fields) {
    fields.Require("output", &output_);
    fields.Read("values", &values_, Limits{2, 5});
    fields.Read("points", &points_, Limits{1, 1 << 16});
    fields.Read("refinements", &refinements_);
    fields.Read("heatmap", &heatmap_);
    fields.Require("score", &score_);
    fields.Read("logits", &logits_);
    fields.Read("threshold", &threshold_, kFraction);
    fields.Read("classes", &classes_);
    fields.Read("names", &names_, OneOrMore());
    fields.Read("depth_scale", &depth_scale_, kPositive);
    fields.Skip({"guides", "lines"});  // for the next image's crop, and for drawings
    if (classes_ && names_.size() != 2) throw JsonError("classes needs the names of both");
  }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const Outputs::Output& output = outputs.At(output_);
    if (output.values.empty() || output.values.size() % values_ != 0) {
      throw output.IsNot(std::to_string(values_) + " values for each point");
    }
    const float score = Single(outputs, score_);
    const std::optional<float> first = classes_ ? std::optional(Single(outputs, *classes_)) : std::nullopt;
    std::vector<Place> places;
    std::vector<double> depths;
    for (const float* each = output.values.data(); each != output.values.data() + output.values.size();
         each += values_) {
      places.push_back({each[0], each[1]});
      depths.push_back(values_ > 2 ? each[2] : std::numeric_limits<double>::quiet_NaN());
    }
    const size_t stated = places.size();
    if (heatmap_) Refine(*heatmap_, outputs, frame.network, places);
    for (const Refinement& each : refinements_) Refine(each, outputs, places, depths);
    const size_t count = points_.value_or(places.size());
    if (count > places.size() || (values_ > 3 && count > stated)) {
      throw NotOfThisKind("its output '" + output_ + "' has " + std::to_string(places.size()) + " points only");
    }
    const double probability = logits_ ? Sigmoid(static_cast<double>(score)) : score;
    const bool finite = std::all_of(places.begin(), places.end(),
                                    [](const Place& each) { return std::isfinite(each.x) && std::isfinite(each.y); });
    if (!(probability >= threshold_ && finite)) return {};
    Detection result;
    result.class_id = !first || *first >= 1 - *first ? 0 : 1;
    result.label = LabelOf(labels.empty() ? names_ : labels, result.class_id);
    result.score = static_cast<float>(probability);
    for (size_t i = 0; i < count; ++i) {
      result.points.push_back({static_cast<float>((places[i].x - frame.offset_x) / frame.scale_x),
                               static_cast<float>((places[i].y - frame.offset_y) / frame.scale_y)});
      result.depths.push_back(static_cast<float>(depths[i] / (frame.scale_x * depth_scale_)));
      if (values_ > 3) {
        const float sure = Sigmoid(output.values[i * values_ + 3]);
        result.point_scores.push_back(std::isnan(sure) ? 0 : sure);
      }
    }
    const bool deep =
        std::all_of(result.depths.begin(), result.depths.end(), [](float each) { return std::isfinite(each); });
    if (!deep) result.depths.clear();
    return {result};
  }

 private:
  std::string output_;
  size_t values_ = 3;
  std::optional<size_t> points_;  // how many are reported
  std::vector<Refinement> refinements_;
  std::optional<Heatmap> heatmap_;
  std::string score_;
  bool logits_ = false;
  double threshold_ = 0.5;
  std::optional<std::string> classes_;
  Labels names_{"face"};
  double depth_scale_ = 1;
};

}  // namespace

Kinds KeypointDecoders() {
  return {{"blaze", Made<Blaze>}, {"landmark", Made<Landmark>}, {"landmarks", Made<Landmarks>}};
}

}  // namespace agent
