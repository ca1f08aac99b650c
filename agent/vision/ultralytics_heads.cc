#include "vision/ultralytics_heads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "vision/masks.h"

namespace agent {
namespace {

constexpr size_t kCandidates = 30000;

float Clipped(float value, float most) { return std::min(std::max(value, 0.0f), most); }

Point Clipped(Point point, Size image) {
  return {Clipped(point.x, static_cast<float>(image.width)), Clipped(point.y, static_cast<float>(image.height))};
}

class Boxes : public BoxDecoder {
 public:
  explicit Boxes(HeadParameters parameters)
      : BoxDecoder(parameters.threshold, parameters.suppression, kCandidates), parameters_(std::move(parameters)) {}

 protected:
  Candidates Find(const Outputs& outputs, const Frame&) const override { return FindPlaces(outputs, true); }

  Candidates Reduced(const Candidates& found) const override {
    if (parameters_.form != Form::kChosen) return BoxDecoder::Reduced(found);
    std::vector<size_t> first(std::min(found.size(), suppression().most));
    std::iota(first.begin(), first.end(), size_t{0});
    return found.Chosen(first);
  }

  // The boxes, cut off at the image's edges; none is left out for that.
  std::vector<Detection> Results(const Candidates& found, const Outputs&, const Frame& frame,
                                 const Labels& labels) const override {
    std::vector<Detection> results = Named(found, labels);
    for (size_t i = 0; i < results.size(); ++i) {
      const Box box = frame.ToImage(found.boxes[i]);
      const Point first = Clipped(Point{box.x1, box.y1}, frame.image);
      const Point last = Clipped(Point{box.x2, box.y2}, frame.image);
      results[i].box = Box{first.x, first.y, last.x, last.y};
    }
    return results;
  }

  // Places whose scores exceed the threshold; boxes have corners, or x, y, width and height if that is not asked for.
  Candidates FindPlaces(const Outputs& outputs, bool as_corners) const {
    const Table table = outputs.TableOf(parameters_.output);
    const bool columns = parameters_.form == Form::kChannels;
    const bool chosen = parameters_.form == Form::kChosen;
    const int64_t count = columns ? table.columns : table.rows;
    const int64_t width = columns ? table.rows : table.columns;
    const int64_t step = columns ? table.columns : 1;  // between two values of a place
    const int64_t first = parameters_.form == Form::kObjectness ? 5 : 4;
    const int64_t last = chosen ? 6 : width - parameters_.extras;
    if (last <= first || last + parameters_.extras != width) {
      throw NotOfThisKind("its output '" + parameters_.output + "' has " + std::to_string(width) +
                          " values for each place");
    }
    Candidates found;
    found.extras_each = static_cast<size_t>(parameters_.extras);
    for (int64_t place = 0; place < count; ++place) {
      const float* values = table.values + (columns ? place : place * width);
      Best best = chosen ? Best{values[4], ClassOf(values[5])} : BestOf(values + first * step, last - first, step);
      if (parameters_.form == Form::kObjectness) best.value *= values[4];
      if (!(best.value > parameters_.threshold) || best.index < 0) continue;
      const auto at = [&](int64_t i) { return values[i * step]; };
      bool sound = true;
      for (int64_t i = last; i < width; ++i) sound = sound && std::isfinite(at(i));
      if (!sound) continue;
      found.Add(best.value,
                chosen || !as_corners ? Box{at(0), at(1), at(2), at(3)} : Around(at(0), at(1), at(2), at(3)),
                best.index);
      for (int64_t i = last; i < width; ++i) found.extras.push_back(at(i));
    }
    return found;
  }

  static std::vector<Detection> Named(const Candidates& found, const Labels& labels) {
    std::vector<Detection> results(found.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].class_id = found.classes[i];
      results[i].label = LabelOf(labels, found.classes[i]);
      results[i].score = found.scores[i];
    }
    return results;
  }

  const HeadParameters& parameters() const { return parameters_; }

 private:
  // -1 for what is no class's number.
  static int64_t ClassOf(float value) {
    if (std::isnan(value)) return 0;
    return value > -1 && value < static_cast<float>(int64_t{1} << 31) ? static_cast<int64_t>(value) : -1;
  }

  HeadParameters parameters_;
};

class Masks : public Boxes {
 public:
  Masks(const HeadParameters& parameters, std::string prototypes)
      : Boxes(parameters), prototypes_(std::move(prototypes)) {}

 protected:
  std::vector<Detection> Results(const Candidates& found, const Outputs& outputs, const Frame& frame,
                                 const Labels& labels) const override {
    const Planes shapes = outputs.PlanesOf(prototypes_, parameters().extras);
    std::vector<Detection> all = Boxes::Results(found, outputs, frame, labels);
    std::vector<Detection> results;
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> sums(static_cast<size_t>(shapes.area()));
      for (int64_t c = 0; c < shapes.channels; ++c) {
        const float coefficient = found.ExtrasOf(i)[c];
        const float* plane = shapes.values + c * shapes.area();
        for (size_t j = 0; j < sums.size(); ++j) sums[j] += coefficient * plane[j];
      }
      const Size size{static_cast<int>(shapes.rows), static_cast<int>(shapes.columns)};
      all[i].mask = MaskIn(*all[i].box, OnImage(std::move(sums), size, frame), frame.image);
      if (all[i].mask) results.push_back(std::move(all[i]));  // one without pixels is none
    }
    return results;
  }

 private:
  std::string prototypes_;
};

class Points : public Boxes {
 public:
  Points(const HeadParameters& parameters, std::pair<int64_t, int64_t> shape) : Boxes(parameters), shape_(shape) {}

 protected:
  std::vector<Detection> Results(const Candidates& found, const Outputs& outputs, const Frame& frame,
                                 const Labels& labels) const override {
    std::vector<Detection> results = Boxes::Results(found, outputs, frame, labels);
    for (size_t i = 0; i < results.size(); ++i) {
      for (int64_t j = 0; j < shape_.first; ++j) {
        const float* values = found.ExtrasOf(i) + j * shape_.second;
        results[i].points.push_back(Clipped(frame.ToImage(Point{values[0], values[1]}), frame.image));
        if (shape_.second > 2) results[i].point_scores.push_back(values[2]);
      }
    }
    return results;
  }

 private:
  std::pair<int64_t, int64_t> shape_;
};

class TurnedBoxes : public Boxes {
 public:
  using Boxes::Boxes;

 protected:
  // Boxes are x, y, width and height here, of chosen ones too.
  Candidates Find(const Outputs& outputs, const Frame&) const override { return FindPlaces(outputs, false); }

  Candidates Reduced(const Candidates& found) const override {
    if (parameters().form == Form::kChosen) return Boxes::Reduced(found);
    return found.Chosen(SuppressedTurned(found, suppression()));
  }

  std::vector<Detection> Results(const Candidates& found, const Outputs&, const Frame& frame,
                                 const Labels& labels) const override {
    std::vector<Detection> results = Named(found, labels);
    for (size_t i = 0; i < results.size(); ++i) {
      const Box& box = found.boxes[i];
      const Point centre = frame.ToImage(Point{box.x1, box.y1});
      const float half_width = box.x2 / static_cast<float>(frame.scale_x) / 2;
      const float half_height = box.y2 / static_cast<float>(frame.scale_y) / 2;
      const float cosine = std::cos(*found.ExtrasOf(i));
      const float sine = std::sin(*found.ExtrasOf(i));
      const Point along{half_width * cosine, half_width * sine};
      const Point across{half_height * -sine, half_height * cosine};
      const Point first{centre.x + along.x + across.x, centre.y + along.y + across.y};
      const Point second{centre.x + along.x - across.x, centre.y + along.y - across.y};
      const Point third{2 * centre.x - first.x, 2 * centre.y - first.y};
      const Point fourth{2 * centre.x - second.x, 2 * centre.y - second.y};
      results[i].corners = std::array<Point, 4>{first, second, third, fourth};
      results[i].box = Around(*results[i].corners);
    }
    return results;
  }
};

}  // namespace

std::unique_ptr<Decoder> MakeBoxes(const HeadParameters& parameters) { return std::make_unique<Boxes>(parameters); }

std::unique_ptr<Decoder> MakeMasks(const HeadParameters& parameters, const std::string& prototypes) {
  return std::make_unique<Masks>(parameters, prototypes);
}

std::unique_ptr<Decoder> MakePoints(const HeadParameters& parameters, std::pair<int64_t, int64_t> shape) {
  return std::make_unique<Points>(parameters, shape);
}

std::unique_ptr<Decoder> MakeTurnedBoxes(const HeadParameters& parameters) {
  return std::make_unique<TurnedBoxes>(parameters);
}

}  // namespace agent
