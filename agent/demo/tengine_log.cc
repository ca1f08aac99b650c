// The lines that `agent demo` prints for people.
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <numeric>

#include "demo/report.h"
#include "failure.h"
#include "files.h"
#include "version.h"

namespace agent {
namespace {

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
    text += Text(format, value);
  }
  return text;
}

std::string Corners(const Box& box, const char* format) { return Joined(format, {box.x1, box.y1, box.x2, box.y2}); }

// Corners as whole numbers, cut off; none is -0.
Box Whole(const Box& box) {
  const auto whole = [](float value) { return std::trunc(value) + 0.0f; };
  return {whole(box.x1), whole(box.y1), whole(box.x2), whole(box.y2)};
}

// The text of a result in each format, with its line's end.

std::string Classification(const Detection& detection) {
  const std::string text = Text("%f, %" PRId64, detection.score.value_or(0), detection.class_id);
  const bool named = detection.label != std::to_string(detection.class_id);
  return text + (named ? ", " + Printable(detection.label) : "") + "\n";
}

std::string RetinaFace(const Detection& detection) {
  const Box& box = BoxOf(detection);
  const double x = box.x1;
  const double y = box.y1;
  return Text("BOX %.2f:( %g , %g ),( %g , %g )\n", detection.score.value_or(0), x, y, box.x2 - x, box.y2 - y);
}

std::string Landmark(const Detection& detection) {
  std::string text = Text("%zu points:", detection.points.size());
  for (const Point& point : detection.points) text += Text(" %.0f,%.0f", point.x, point.y);
  return text + (detection.points.empty() ? " \n" : "\n");
}

// Percents, box and label.
std::string Named(const Detection& detection, const char* percents, const std::string& box) {
  return Text(percents, Percent(detection)) + "%, [" + box + "], " + Printable(detection.label) + "\n";
}

// The same after the class.
std::string Object(const Detection& detection, const char* percents, const std::string& box) {
  return Text("%2" PRId64 ": ", detection.class_id) + Named(detection, percents, box);
}

// Not one of Tengine's: the text, with the corners of its place.
std::string TextLine(const Detection& detection) {
  std::vector<Point> outline;
  if (detection.corners) {
    outline.assign(detection.corners->begin(), detection.corners->end());
  } else if (detection.box) {
    const auto [x1, y1, x2, y2] = *detection.box;
    outline = {{x1, y1}, {x2, y1}, {x2, y2}, {x1, y2}};
  }
  std::string places;
  for (const Point& corner : outline) places += Text("%s%.0f,%.0f", places.empty() ? "" : " ", corner.x, corner.y);
  return Text("%.3f, [%s], ", detection.score.value_or(0), places.c_str()) + Printable(detection.label) + "\n";
}

// Not one of Tengine's: everything that a result has.
std::string WholeObject(const Detection& detection) {
  std::string text = Text("%2" PRId64 ":", detection.class_id);
  if (detection.score) text += Text(" %3.0f%%,", Percent(detection));
  if (detection.corners) {
    std::vector<double> places;
    for (const Point& corner : *detection.corners) places.insert(places.end(), {corner.x, corner.y});
    text += " [" + Joined("%4.0f", places) + "],";
  } else if (detection.box) {
    text += " [" + Corners(*detection.box, "%4.0f") + "],";
  }
  if (detection.mask) {
    int64_t area = 0;
    for (size_t i = 1; i < detection.mask->counts.size(); i += 2) area += detection.mask->counts[i];
    text += Text(" %" PRId64 " pixels,", area);
  }
  if (const auto& surface = detection.surface) {
    text += Text(" %g to %g, median %g,", surface->minimum, surface->maximum, surface->median);
  }
  text += " " + Printable(detection.label) + "\n";
  return detection.points.empty() ? text : text + Landmark(detection);
}

struct Format {
  const char* name;
  const char* count;  // what the line before the results calls their number, if there is one
  std::string (*shown)(const Detection& detection);
};
constexpr Format kFormats[] = {
    {"classification", nullptr, Classification},
    {"retinaface", "detected face num", RetinaFace},
    {"landmark", nullptr, Landmark},
    {"points", nullptr,
     [](const Detection& it) { return Printable(it.label) + Text(" %.0f%%, ", Percent(it)) + Landmark(it); }},
    {"yolo", nullptr, [](const Detection& it) { return Named(it, "%3.0f", Corners(BoxOf(it), "%4.0f")); }},
    {"yolov3", "detection num", [](const Detection& it) { return Object(it, "%3.0f", Corners(BoxOf(it), "%4.0f")); }},
    {"nanodet", "detection num", [](const Detection& it) { return Object(it, "%3.3f", Corners(BoxOf(it), "%7.3f")); }},
    {"efficientdet", nullptr,
     [](const Detection& it) { return Object(it, "%3.0f", Corners(Whole(BoxOf(it)), "%4.0f")); }},
    {"objects", "detection num", WholeObject},
    {"text", nullptr, TextLine},
};

const Format& FormatOf(const std::string& log) {
  for (const Format& format : kFormats) {
    if (log == format.name) return format;
  }
  throw Failure(Code::kInput, "the package's results are printed in a way that is not known here", log);
}

std::string VersionLine() {
  const std::string tvm = Version().at("tvm").text();
  // A post-release repackages the same version of TVM.
  return std::string("edgedeploy ") + VersionText() + ", Apache TVM " + tvm.substr(0, tvm.find(".post")) + "\n";
}

class Log : public Report {
 public:
  explicit Log(const Showing& showing)
      : showing_(showing),
        log_(showing.manifest.usage->log),
        format_(FormatOf(log_)),
        files_("model file : " + Printable(showing.package) + "\nimage file : ") {}

  void Begin() override {
    if (showing_.kind != Kind::kImage) Write(VersionLine() + files_ + Printable(showing_.source) + "\n");
  }

  void Add(const Outcome& outcome, const Picture&) override {
    if (showing_.kind == Kind::kImage) return Write(OfImage(outcome));
    const std::string name = outcome.file.substr(outcome.file.rfind('/') + 1);
    Write(Printable(showing_.kind == Kind::kCamera ? Text("frame %d", outcome.number) : name) + ": " +
          outcome.parts.Line() + "\n" + Results(outcome));
  }

  void End(const Summary& summary, bool) override {
    if (showing_.kind != Kind::kImage) Write(summary.Line() + "\n" + Tail());
  }

 private:
  static void Write(const std::string& text) {
    WriteAll(STDOUT_FILENO, text.data(), text.size(), "to standard output");
  }

  std::string OfImage(const Outcome& outcome) const {
    std::string text = VersionLine();
    if (log_ == "classification" || log_ == "efficientdet") {
      const ImageInput& input = showing_.manifest.usage->input;
      text += "\n" + files_ + Printable(outcome.file) + "\n";
      text += Text("img_h, img_w, scale[%zu], mean[%zu] : %d %d , ", input.scale.size(), input.mean.size(),
                   outcome.frame.network.height, outcome.frame.network.width);
      text += Joined("%.3f", input.scale, " ") + ", " + Joined("%.1f", input.mean, " ") + "\n";
    }
    if (log_ == "retinaface") {
      text += Text("img_h, img_w : %d, %d\n", outcome.frame.image.height, outcome.frame.image.width);
    }
    text += TimeLine(outcome.runs_ms);
    if (log_ != "landmark" && log_ != "points") text += kRule + "\n";
    text += Results(outcome);
    if (log_ == "classification") text += kRule + "\n";
    return text + Tail();
  }

  std::string TimeLine(const std::vector<double>& runs) const {
    const double mean = std::accumulate(runs.begin(), runs.end(), 0.0) / static_cast<double>(runs.size());
    const auto [least, most] = std::minmax_element(runs.begin(), runs.end());
    if (log_ == "landmark" || log_ == "points") {
      return Text("Repeat [%zu] min %.3f ms, max %.3f ms, avg %.3f ms\n", runs.size(), *least, *most, mean);
    }
    return Text("Repeat %zu times, thread %d, avg time %.2f ms, max_time %.2f ms, min_time %.2f ms\n", runs.size(),
                showing_.threads, mean, *most, *least);
  }

  std::string Results(const Outcome& outcome) const {
    std::string text = format_.count ? Text("%s: %zu\n", format_.count, outcome.detections.size()) : "";
    for (const Detection& each : outcome.detections) text += format_.shown(each);
    return text;
  }

  std::string Tail() const {
    return showing_.manifest.weights == "random" ? "weights : random, seeded: what it sees means nothing\n" : "";
  }

  const Showing showing_;
  const std::string& log_;
  const Format& format_;
  const std::string files_;
};

}  // namespace

std::unique_ptr<Report> LogReport(const Showing& showing) { return std::make_unique<Log>(showing); }

}  // namespace agent
