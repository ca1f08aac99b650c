// Shows parts of the agent to its tests, which compare them with other programs (tests/unit/test_agent_parts.py).

#include <builtin_fp16.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "camera/camera.h"
#include "elements.h"
#include "failure.h"
#include "images/codecs.h"
#include "images/image_file.h"
#include "json.h"
#include "machine.h"
#include "manifest.h"
#include "model.h"
#include "rpc_session.h"
#include "sha256.h"
#include "vision/decoder.h"
#include "vision/detector.h"
#include "vision/formats.h"
#include "watch.h"

namespace {

std::string Input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

std::string Unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

// Each line is a document in hexadecimal; it is printed as JSON again, or as the reason why it is refused.
template <typename Parse>
void EachLine(Parse parse) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << parse(Unhex(line)) << '\n';
    } catch (const std::runtime_error& error) {
      std::cout << "refused: " << error.what() << '\n';
    }
  }
}

// Height, width, and the hash of the pixels.
std::string Described(const agent::Image& image) {
  agent::Sha256 digest;
  for (int y = 0; y < image.height(); ++y) digest.Update(image.Row(y), 3 * static_cast<size_t>(image.width()));
  return std::to_string(image.height()) + " " + std::to_string(image.width()) + " " + digest.Finish();
}

// The images of a camera, and of each how many bytes it has as JPEG.
void ShowCamera(const std::string& which, int width, int height, bool jpeg, int count) {
  agent::RememberInterruption();
  try {
    const auto camera = agent::OpenCamera(which, {width, height, jpeg});
    std::cout << camera->name() << std::endl;
    for (int i = 0; i < count; ++i) {
      const auto picture = camera->Next();
      if (!picture) break;
      std::cout << Described(picture->pixels) << ' ' << picture->jpeg.size() << std::endl;
    }
  } catch (const agent::Failure& failure) {
    std::cout << "refused: " << failure.what() << std::endl;
  }
}

// Raw numbers of one type to raw numbers of another.
template <typename From, typename To, typename Convert>
void EachNumber(Convert convert) {
  const std::string input = Input();
  const auto* numbers = reinterpret_cast<const From*>(input.data());
  for (size_t i = 0; i < input.size() / sizeof(From); ++i) {
    const To converted = convert(numbers[i]);
    std::fwrite(&converted, sizeof converted, 1, stdout);
  }
}

// The next line as JSON.
agent::Json Line() {
  std::string line;
  std::getline(std::cin, line);
  return agent::ParseJson(line);
}

int Whole(const agent::Json& json) { return static_cast<int>(json.integer()); }

// What a manifest, the next line, says of a network's use.
struct Use {
  agent::Manifest manifest;
  agent::Detector detector;

  static Use Read() {
    agent::Manifest manifest = agent::ParseManifest(Line().Dump());
    agent::Detector detector(manifest, manifest.entries.front());
    return {std::move(manifest), std::move(detector)};
  }
  std::vector<char> Input() const { return std::vector<char>(manifest.entries.front().inputs.front().bytes); }
};

// A frame, as a line says, whose bytes follow.
agent::CameraFrame Frame(const agent::Json& line, std::string* bytes) {
  const int height = Whole(line.at("height"));
  const int width = Whole(line.at("width"));
  const auto stride = static_cast<size_t>(line.at("stride").integer());
  const auto format = static_cast<agent::PixelFormat>(line.at("format").integer());
  const size_t needed = agent::FrameBytes({nullptr, height, width, stride, format});
  *bytes = Input();
  if (bytes->size() != needed) throw std::runtime_error("the frame has " + std::to_string(needed) + " bytes");
  return {reinterpret_cast<const uint8_t*>(bytes->data()), height, width, stride, format};
}

// The pixels that a frame stands for.
void ShowFrame() {
  std::string bytes;
  const agent::Image image = agent::FromFrame(Frame(Line(), &bytes));
  for (int y = 0; y < image.height(); ++y) {
    std::fwrite(image.Row(y), 3, static_cast<size_t>(image.width()), stdout);
  }
}

// The input that a frame becomes.
void ShowInput() {
  const Use use = Use::Read();
  std::string bytes;
  const agent::CameraFrame frame = Frame(Line(), &bytes);
  std::vector<char> input = use.Input();
  use.detector.Prepare(frame, input.data());
  std::fwrite(input.data(), 1, input.size(), stdout);
}

// The results in an image of a size, of outputs whose bytes follow.
void ShowResults() {
  const Use use = Use::Read();
  const agent::Json line = Line();
  std::vector<char> input = use.Input();
  const agent::Image image(Whole(line.at("height")), Whole(line.at("width")));
  const agent::Frame frame = use.detector.Prepare(agent::FrameOf(image), input.data());
  const std::string bytes = Input();
  std::vector<std::vector<double>> memory;  // aligned for all types
  std::vector<const void*> outputs;
  size_t at = 0;
  for (const agent::TensorSpec& spec : use.manifest.entries.front().outputs) {
    memory.emplace_back(spec.bytes / sizeof(double) + 1);
    bytes.copy(reinterpret_cast<char*>(memory.back().data()), spec.bytes, at);
    outputs.push_back(memory.back().data());
    at += spec.bytes;
  }
  agent::Json results{agent::Json::Array{}};
  for (const agent::Detection& each : use.detector.Decode(outputs, frame)) results.Add(each.Describe());
  std::cout << results.Dump() << '\n';
}

}  // namespace

int Show(const std::string& part, char** values) {
  if (part == "json") {
    EachLine([](const std::string& text) { return agent::ParseJson(text).Dump(); });
  } else if (part == "manifest") {
    EachLine([](const std::string& text) { return agent::ParseManifest(text).model; });
  } else if (part == "sha256") {
    agent::Sha256 digest;
    const std::string input = Input();
    // In uneven pieces, so that blocks are cut everywhere.
    for (size_t at = 0, size = 1; at < input.size(); at += size, size = size % 97 + 13) {
      size = std::min(size, input.size() - at);
      digest.Update(input.data() + at, size);
    }
    std::cout << digest.Finish();
  } else if (part == "image") {
    EachLine([](const std::string& content) { return Described(agent::DecodeImage(content, "the image")); });
  } else if (part == "jpeg") {
    // A line of height and width, then pixels.
    int height = 0;
    int width = 0;
    std::cin >> height >> width;
    std::cin.get();
    const std::string pixels = Input();
    const auto* bytes = reinterpret_cast<const uint8_t*>(pixels.data());
    std::cout << agent::EncodeJpeg({bytes, height, width, 3 * static_cast<size_t>(width)}, std::stoi(values[2]));
  } else if (part == "camera") {
    ShowCamera(values[2], std::stoi(values[3]), std::stoi(values[4]), std::stoi(values[5]) != 0, std::stoi(values[6]));
  } else if (part == "float32-to-float16") {
    EachNumber<float, uint16_t>([](float x) { return agent::Half(x).bits; });
  } else if (part == "float64-to-float16") {
    EachNumber<double, uint16_t>(
        [](double x) { return __truncXfYf2__<double, uint64_t, 52, uint16_t, uint16_t, 10>(x); });
  } else if (part == "float16-to-float32") {
    EachNumber<uint16_t, float>(
        [](uint16_t x) { return __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(x); });
  } else if (part == "statistics") {
    std::vector<double> runs(std::istream_iterator<double>(std::cin), {});
    agent::Json json = agent::Json::NewObject();
    agent::AddStatistics(runs, &json);
    std::cout << json.Dump();
  } else if (part == "version-is-at-least") {
    std::cout << agent::VersionIsAtLeast(values[2], values[3]);
  } else if (part == "work-path") {
    EachLine([](const std::string& name) { return agent::WorkPath("/work", name); });
  } else if (part == "frame") {
    ShowFrame();
  } else if (part == "input") {
    ShowInput();
  } else if (part == "results") {
    ShowResults();
  } else if (part == "schemas") {
    std::cout << agent::DecoderSchemas().Dump();
  } else {
    return 2;
  }
  return 0;
}

int main(int count, char** values) {
  try {
    return Show(count > 1 ? values[1] : "", values);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
