#include "demo/report.h"

#include <utility>

#include "files.h"
#include "images/codecs.h"
#include "protocol.h"

namespace agent {
namespace {

constexpr int kDemoProtocol = 1;
constexpr size_t kMaximumLine = 65536;
// Of a line of which all but the results are written: names of files are at most PATH_MAX long.
constexpr size_t kMostResults = kMaximumLine - 16384;
constexpr int kQuality = 90;

class Messages : public Report {
 public:
  Messages(const Showing& showing, bool images) : showing_(showing), images_(images), output_(TakeStandardOutput()) {
    EndWithReader(output_.get());
  }

  void Begin() override {
    const Manifest& manifest = showing_.manifest;
    Json json = Json::NewObject({{"ready", true}, {"protocol", kDemoProtocol}, {"model", manifest.model}});
    json.Set("task", manifest.usage->demo).Set("weights", manifest.weights).Set("board", manifest.board);
    json.Set("threads", showing_.threads).Set("load_ms", showing_.load_ms);
    json.Set("kind", showing_.kind == Kind::kCamera ? "camera" : "images").Set("source", showing_.source);
    Send(json, "");
  }

  void Add(const Outcome& outcome, const Picture& picture) override {
    Json json = Described(outcome, showing_.kind == Kind::kImage && showing_.repeat > 0);
    const std::string jpeg = images_ ? JpegOf(picture) : "";
    if (images_) json.Set("bytes", Json::Size(jpeg.size()));
    Send(json, jpeg);
  }

  void End(const Summary& summary, bool interrupted) override {
    Send(Json::NewObject({{"summary", summary.Describe().Set("interrupted", interrupted)}}), "");
  }

 private:
  // In one piece, so that readers never see half a message without need.
  void Send(const Json& json, const std::string& content) {
    const std::string message = json.Dump() + "\n" + content;
    WriteAll(output_.get(), message.data(), message.size(), "a message");
  }

  const Showing showing_;
  const bool images_;
  const Descriptor output_;
};

}  // namespace

void AddResults(const std::vector<Detection>& detections, Json* json) {
  Json results{Json::Array{}};
  size_t size = 0;
  int64_t left_out = 0;
  for (const Detection& detection : detections) {
    Json result = detection.Describe();
    size += result.Dump().size() + 2;
    if (size > kMostResults) {
      ++left_out;
    } else {
      results.Add(std::move(result));
    }
  }
  json->Set("results", std::move(results));
  if (left_out > 0) json->Set("left_out", left_out);
}

Json Described(const Outcome& outcome, bool was_measured) {
  Json times = Json::NewObject();
  outcome.parts.Describe(&times);
  if (was_measured) AddStatistics(outcome.runs_ms, &times);
  Json json = Json::NewObject({{"frame", outcome.number}, {"image", outcome.file}});
  json.Set("width", outcome.frame.image.width).Set("height", outcome.frame.image.height).Set("times", times);
  AddResults(outcome.detections, &json);
  return json;
}

std::string JpegOf(const Picture& picture) {
  return picture.jpeg.empty() ? EncodeJpeg(picture.pixels, kQuality) : picture.jpeg;
}

std::unique_ptr<Report> MessageReport(const Showing& showing, bool images) {
  return std::make_unique<Messages>(showing, images);
}

}  // namespace agent
