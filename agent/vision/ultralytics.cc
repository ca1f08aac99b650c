// Networks of Ultralytics (YOLOv5, v8, 11, 26 and their relatives), decoded by the metadata in their files
// (edgedeploy/vision/decoders/ultralytics.py and ultralytics_heads.py).
#include <algorithm>
#include <array>
#include <cmath>

#include "vision/decoder.h"
#include "vision/masks.h"
#include "vision/ultralytics_metadata.h"

namespace agent {
namespace {

// How the output is laid out: places are columns of x, y, width, height, scores and what the task adds; or rows, with
// how sure the network is that there is something before the scores; or rows that the network has chosen itself, of x1,
// y1, x2, y2, score, class and what the task adds.
enum class Form { kChannels, kObjectness, kChosen };

struct HeadParameters {
  float threshold = 0.25f;  // which scores must exceed
  Suppression suppression{0.7, 0, true, 300};
  std::string output;
  Form form;
  int64_t extras;  // values that the task adds for each place
};

constexpr size_t kCandidates = 30000;

Point ClippedTo(Point point, Size image) {
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
    return {found.begin(), found.begin() + static_cast<std::ptrdiff_t>(std::min(found.size(), suppression().most))};
  }

  // The boxes, cut off at the image's edges; none is left out for that.
  bool Place(const Candidate& found, const Outputs&, const Frame& frame, Detection* result) const override {
    const Box box = frame.ToImage(found.box);
    const Point first = ClippedTo(Point{box.x1, box.y1}, frame.image);
    const Point last = ClippedTo(Point{box.x2, box.y2}, frame.image);
    result->box = Box{first.x, first.y, last.x, last.y};
    return true;
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
    for (int64_t place = 0; place < count; ++place) {
      const float* values = table.values + (columns ? place : place * width);
      Best best = chosen ? Best{values[4], ClassOf(values[5])} : BestOf(values + first * step, last - first, step);
      if (parameters_.form == Form::kObjectness) best.value *= values[4];
      if (!(best.value > parameters_.threshold) || best.index < 0) continue;
      const auto at = [&](int64_t i) { return values[i * step]; };
      bool sound = true;
      for (int64_t i = last; i < width; ++i) sound = sound && std::isfinite(at(i));
      if (!sound) continue;
      found.push_back({best.value,
                       chosen || !as_corners ? Box{at(0), at(1), at(2), at(3)} : Around(at(0), at(1), at(2), at(3)),
                       best.index});
      for (int64_t i = last; i < width; ++i) found.back().extras.push_back(at(i));
    }
    return found;
  }

  const HeadParameters& parameters() const { return parameters_; }

 private:
  // -1 if it is not the number of a class.
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
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    static_cast<void>(outputs.PlanesOf(prototypes_, parameters().extras));  // refuses other shapes in any image
    return Boxes::Find(outputs, frame);
  }

  bool Place(const Candidate& found, const Outputs& outputs, const Frame& frame, Detection* result) const override {
    Boxes::Place(found, outputs, frame, result);
    const Planes shapes = outputs.PlanesOf(prototypes_, parameters().extras);
    std::vector<float> sums(static_cast<size_t>(shapes.area()));
    for (int64_t c = 0; c < shapes.channels; ++c) {
      const float* plane = shapes.values + c * shapes.area();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += found.extras[c] * plane[i];
    }
    const Size size{static_cast<int>(shapes.rows), static_cast<int>(shapes.columns)};
    result->mask = MaskIn(*result->box, OnImage(std::move(sums), size, frame), frame.image);
    return result->mask.has_value();  // leaves out masks without pixels
  }

 private:
  std::string prototypes_;
};

class Points : public Boxes {
 public:
  Points(const HeadParameters& parameters, std::pair<int64_t, int64_t> shape) : Boxes(parameters), shape_(shape) {}

 protected:
  bool Place(const Candidate& found, const Outputs& outputs, const Frame& frame, Detection* result) const override {
    for (int64_t i = 0; i < shape_.first; ++i) {
      const float* values = found.extras.data() + i * shape_.second;
      result->points.push_back(ClippedTo(frame.ToImage(Point{values[0], values[1]}), frame.image));
      if (shape_.second > 2) result->point_scores.push_back(values[2]);
    }
    return Boxes::Place(found, outputs, frame, result);
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
    return Chosen(found, SuppressedTurned(found, suppression()));
  }

  bool Place(const Candidate& found, const Outputs&, const Frame& frame, Detection* result) const override {
    const Point centre = frame.ToImage(Point{found.box.x1, found.box.y1});
    const float half_width = found.box.x2 / static_cast<float>(frame.scale_x) / 2;
    const float half_height = found.box.y2 / static_cast<float>(frame.scale_y) / 2;
    const float cosine = std::cos(found.extras.front());
    const float sine = std::sin(found.extras.front());
    const Point along{half_width * cosine, half_width * sine};
    const Point across{half_height * -sine, half_height * cosine};
    const Point first{centre.x + along.x + across.x, centre.y + along.y + across.y};
    const Point second{centre.x + along.x - across.x, centre.y + along.y - across.y};
    const Point third{2 * centre.x - first.x, 2 * centre.y - first.y};
    const Point fourth{2 * centre.x - second.x, 2 * centre.y - second.y};
    result->corners = std::array<Point, 4>{first, second, third, fourth};
    result->box = Around(*result->corners);
    return true;
  }
};

const TensorSpec* FirstOfRank(const std::vector<TensorSpec>& outputs, size_t rank) {
  const auto found =
      std::find_if(outputs.begin(), outputs.end(), [&](const TensorSpec& spec) { return spec.shape.size() == rank; });
  return found == outputs.end() ? nullptr : &*found;
}

// The task of a network whose file does not say it.
std::string TaskOf(const std::vector<TensorSpec>& outputs) {
  if (!FirstOfRank(outputs, 3)) return "classify";
  return FirstOfRank(outputs, 4) ? "segment" : "detect";
}

// How an output of rank 3 is laid out: told by its shape, and by how many classes the file names.
Form FormOf(const TensorSpec& table, int64_t extras, const UltralyticsDescription& description) {
  const int64_t rows = table.shape[1];
  const int64_t columns = table.shape[2];
  const auto classes = static_cast<int64_t>(description.names.size());
  // YOLOv5's own exporter writes no task; its networks of one class have as many values as those that choose.
  if (columns == 6 + extras && !(classes == 1 && !description.task)) return Form::kChosen;
  if (classes == 0 && rows < columns) return Form::kChannels;
  if (classes == 0 || columns == 5 + classes + extras) return Form::kObjectness;
  if (rows == 4 + classes + extras) return Form::kChannels;
  throw NotOfThisKind("its output '" + table.name + "' is " + Shown(table.shape) + ", which does not suit " +
                      std::to_string(classes) + " classes and " + std::to_string(extras) + " values beside them");
}

std::unique_ptr<Decoder> MakeHead(const std::string& task, HeadParameters parameters, const Described& network,
                                  const UltralyticsDescription& description) {
  const TensorSpec* table = FirstOfRank(network.outputs, 3);
  const TensorSpec* prototypes = FirstOfRank(network.outputs, 4);
  if (!table || (task == "segment" && !prototypes)) {
    std::string shapes;
    for (const TensorSpec& spec : network.outputs) shapes += ", " + spec.name + " " + Shown(spec.shape);
    throw NotOfThisKind("its outputs are not those of the task " + task + shapes);
  }
  parameters.output = table->name;
  parameters.extras = task == "segment" ? prototypes->shape[1]
                      : task == "pose"  ? description.points.first * description.points.second
                      : task == "obb"   ? 1
                                        : 0;
  parameters.form = FormOf(*table, parameters.extras, description);
  if (task == "segment") return std::make_unique<Masks>(parameters, prototypes->name);
  if (task == "pose") return std::make_unique<Points>(parameters, description.points);
  if (task == "obb") return std::make_unique<TurnedBoxes>(parameters);
  return std::make_unique<Boxes>(parameters);
}

Fitted MakeUltralytics(Fields& fields, const Described& network) {
  std::optional<std::string> stated_task;
  HeadParameters head;
  int64_t top = 5;
  fields.Read("task", &stated_task);
  fields.Read("threshold", &head.threshold, kFraction);
  fields.Read("iou_threshold", &head.suppression.iou_threshold, kFraction);
  fields.Read("suppression", &head.suppression.class_aware, kSuppression);
  fields.Read("most", &head.suppression.most, kCount);
  fields.Read("top", &top, kCount);
  const UltralyticsDescription description = DescribeUltralytics(network.metadata);
  const std::string task = stated_task ? *stated_task : description.task ? *description.task : TaskOf(network.outputs);
  if (task == "classify") {
    Json stated = Json::NewObject();
    stated.Set("kind", "classification").Set("top", top);
    Fitted fitted = MakeDecoder(stated, network);
    fitted.fit = Fit::kCover;
    fitted.labels = description.names;
    fitted.has_own_names = true;
    return fitted;
  }
  for (const char* known : {"detect", "segment", "pose", "obb"}) {
    if (task == known) return {MakeHead(task, head, network, description), Fit::kLetterbox, description.names, true};
  }
  throw Failure(Code::kInput, "results of the task '" + task + "' are not known here",
                "the network's outputs can be read as they are");
}

}  // namespace

Kinds UltralyticsDecoders() { return {{"ultralytics", MakeUltralytics}}; }

}  // namespace agent
