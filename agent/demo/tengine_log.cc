#include "demo/tengine_log.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "failure.h"
#include "version.h"

namespace agent {
namespace {

using Detections = std::vector<Detection>;

const std::string kRule(38, '-');

// Numbers are those of Python, which are double.
double Percent(const Detection& detection) { return 100.0 * static_cast<double>(detection.score.value_or(0)); }

const Box& BoxOf(const Detection& detection) {
  if (detection.box) return *detection.box;
  throw Failure(Code::kInput, detection.label + ": a log of boxes needs a decoder that gives boxes");
}

// Each number as `format` has it, with commas between.
std::string Joined(const char* format, const std::vector<double>& values, const char* between = ", ") {
  std::string text;
  for (const double value : values) {
    if (!text.empty()) text += between;
    char number[64];
    std::snprintf(number, sizeof number, format, value);
    text += number;
  }
  return text;
}

std::string Corners(const Box& box, const char* format) { return Joined(format, {box.x1, box.y1, box.x2, box.y2}); }

std::string PointsOf(const Detection& detection) {
  std::string text = Text("%zu points:", detection.points.size());
  for (const Point& point : detection.points) text += Text(" %.0f,%.0f", point.x, point.y);
  return detection.points.empty() ? text + " " : text;
}

std::string Count(const Detections& detections) { return Text("detection num: %zu\n", detections.size()); }

// The text of each result.
template <typename Shown>
std::string Each(const Detections& detections, const Shown& shown) {
  std::string text;
  for (const Detection& each : detections) text += shown(each);
  return text;
}

std::string Classification(const Detections& detections) {
  return Each(detections, [](const Detection& each) {
    const std::string text = Text("%f, %" PRId64, each.score.value_or(0), each.class_id);
    return text + (each.label == std::to_string(each.class_id) ? "" : ", " + Printable(each.label)) + "\n";
  });
}

std::string RetinaFace(const Detections& detections) {
  return Text("detected face num: %zu\n", detections.size()) + Each(detections, [](const Detection& each) {
           const Box& box = BoxOf(each);
           const double x = box.x1;
           const double y = box.y1;
           return Text("BOX %.2f:( %g , %g ),( %g , %g )\n", each.score.value_or(0), x, y, box.x2 - x, box.y2 - y);
         });
}

std::string Landmark(const Detections& detections) {
  return Each(detections, [](const Detection& each) { return PointsOf(each) + "\n"; });
}

std::string ScoredPoints(const Detections& detections) {
  return Each(detections, [](const Detection& each) {
    return Printable(each.label) + Text(" %.0f%%, ", Percent(each)) + PointsOf(each) + "\n";
  });
}

// A line of an object: percents, box and label.
std::string Named(const Detection& detection, const char* percents, const std::string& box) {
  return Joined(percents, {Percent(detection)}) + "%, [" + box + "], " + Printable(detection.label) + "\n";
}

// The same after the class.
std::string Object(const Detection& detection, const char* percents, const std::string& box) {
  return Text("%2" PRId64 ": ", detection.class_id) + Named(detection, percents, box);
}

std::string Yolo(const Detections& detections) {
  return Each(detections, [](const Detection& each) { return Named(each, "%3.0f", Corners(BoxOf(each), "%4.0f")); });
}

std::string YoloV3(const Detections& detections) {
  return Count(detections) +
         Each(detections, [](const Detection& each) { return Object(each, "%3.0f", Corners(BoxOf(each), "%4.0f")); });
}

std::string NanoDet(const Detections& detections) {
  return Count(detections) +
         Each(detections, [](const Detection& each) { return Object(each, "%3.3f", Corners(BoxOf(each), "%7.3f")); });
}

std::string EfficientDet(const Detections& detections) {
  return Each(detections, [](const Detection& each) {
    const Box& box = BoxOf(each);
    // Corners are whole numbers there, cut off; none is -0.
    const auto whole = [](double value) { return std::trunc(value) + 0.0; };
    return Object(each, "%3.0f", Joined("%4.0f", {whole(box.x1), whole(box.y1), whole(box.x2), whole(box.y2)}));
  });
}

// Not one of Tengine's: the text, with the corners of its place.
std::string TextLines(const Detections& detections) {
  return Each(detections, [](const Detection& each) {
    std::vector<Point> outline;
    if (each.corners) {
      outline.assign(each.corners->begin(), each.corners->end());
    } else if (each.box) {
      const auto [x1, y1, x2, y2] = *each.box;
      outline = {{x1, y1}, {x2, y1}, {x2, y2}, {x1, y2}};
    }
    std::string places;
    for (const Point& corner : outline) places += Text("%s%.0f,%.0f", places.empty() ? "" : " ", corner.x, corner.y);
    return Text("%.3f, [%s], ", each.score.value_or(0), places.c_str()) + Printable(each.label) + "\n";
  });
}

// Not one of Tengine's: each result in a line, with what there is of it.
std::string Objects(const Detections& detections) {
  return Count(detections) + Each(detections, [](const Detection& each) {
           std::string text = Text("%2" PRId64 ":", each.class_id);
           if (each.score) text += Text(" %3.0f%%,", Percent(each));
           std::vector<double> places;
           if (each.corners) {
             for (const Point& corner : *each.corners) places.insert(places.end(), {corner.x, corner.y});
           } else if (each.box) {
             places = {each.box->x1, each.box->y1, each.box->x2, each.box->y2};
           }
           if (!places.empty()) text += " [" + Joined("%4.0f", places) + "],";
           if (each.mask) {
             int64_t area = 0;
             for (size_t i = 1; i < each.mask->counts.size(); i += 2) area += each.mask->counts[i];
             text += Text(" %" PRId64 " pixels,", area);
           }
           if (each.surface) {
             text += Text(" %g to %g, median %g,", each.surface->minimum, each.surface->maximum, each.surface->median);
           }
           text += " " + Printable(each.label) + "\n";
           return each.points.empty() ? text : text + PointsOf(each) + "\n";
         });
}

using Lines = std::string (*)(const Detections& detections);
constexpr std::pair<const char*, Lines> kLogs[] = {
    {"classification", Classification},
    {"retinaface", RetinaFace},
    {"landmark", Landmark},
    {"points", ScoredPoints},
    {"yolo", Yolo},
    {"yolov3", YoloV3},
    {"nanodet", NanoDet},
    {"efficientdet", EfficientDet},
    {"objects", Objects},
    {"text", TextLines},
};

Lines LinesOf(const std::string& log) {
  for (const auto& [name, lines] : kLogs) {
    if (log == name) return lines;
  }
  throw Failure(Code::kInput, "the package's results are printed in a way that is not known here", log);
}

std::string VersionLine() {
  const std::string tvm = Version().at("tvm").text();
  // A post-release repackages the same version of TVM.
  return std::string("edgedeploy ") + VersionText() + ", Apache TVM " + tvm.substr(0, tvm.find(".post")) + "\n";
}

const std::string& LogOf(const Manifest& manifest) {
  if (manifest.usage) return manifest.usage->log;
  throw Failure(Code::kInput, "the package does not say how it is used", "build it again with --demo NAME");
}

}  // namespace

TengineLog::TengineLog(const Manifest& manifest, std::string file, int threads)
    : manifest_(manifest), log_(LogOf(manifest)), file_(Printable(file)), threads_(threads) {
  LinesOf(log_);
}

std::string TengineLog::OfImage(const Outcome& outcome) const {
  std::string text = VersionLine();
  if (log_ == "classification" || log_ == "efficientdet") {
    const ImageInput& input = manifest_.usage->input;
    text += "\nmodel file : " + file_ + "\nimage file : " + Printable(outcome.file) + "\n";
    text += Text("img_h, img_w, scale[%zu], mean[%zu] : %d %d , ", input.scale.size(), input.mean.size(),
                 outcome.frame.network.height, outcome.frame.network.width);
    text += Joined("%.3f", input.scale, " ") + ", " + Joined("%.1f", input.mean, " ") + "\n";
  }
  if (log_ == "retinaface") {
    text += Text("img_h, img_w : %d, %d\n", outcome.frame.image.height, outcome.frame.image.width);
  }
  text += TimeLine(outcome);
  if (log_ != "landmark" && log_ != "points") text += kRule + "\n";
  text += Results(outcome.detections);
  if (log_ == "classification") text += kRule + "\n";
  return text + Tail();
}

std::string TengineLog::Head(const std::string& source) const {
  return VersionLine() + "model file : " + file_ + "\nimage file : " + Printable(source) + "\n";
}

std::string TengineLog::OfFrame(const std::string& name, const Outcome& outcome) const {
  return Printable(name) + ": " + outcome.parts.Line() + "\n" + Results(outcome.detections);
}

std::string TengineLog::Tail() const {
  return manifest_.weights == "random" ? "weights : random, seeded: what it sees means nothing\n" : "";
}

std::string TengineLog::TimeLine(const Outcome& outcome) const {
  const std::vector<double>& runs = outcome.runs_ms;
  const double mean = std::accumulate(runs.begin(), runs.end(), 0.0) / static_cast<double>(runs.size());
  const double least = *std::min_element(runs.begin(), runs.end());
  const double most = *std::max_element(runs.begin(), runs.end());
  if (log_ == "landmark" || log_ == "points") {
    return Text("Repeat [%zu] min %.3f ms, max %.3f ms, avg %.3f ms\n", runs.size(), least, most, mean);
  }
  return Text("Repeat %zu times, thread %d, avg time %.2f ms, max_time %.2f ms, min_time %.2f ms\n", runs.size(),
              threads_, mean, most, least);
}

std::string TengineLog::Results(const Detections& detections) const { return LinesOf(log_)(detections); }

}  // namespace agent
