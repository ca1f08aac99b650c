// Cameras that another program reads: `rpicam-vid` that of a Raspberry Pi, `ffmpeg` a stream from the network.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "camera/camera.h"
#include "camera/child.h"
#include "failure.h"
#include "vision/formats.h"
#include "vision/frame.h"
#include "watch.h"

namespace agent {
namespace {

// Until a camera gives its first image, and then from one to the next.
constexpr std::chrono::seconds kFirst(30);
constexpr std::chrono::seconds kNext(10);
constexpr std::chrono::milliseconds kGlance(50);

CameraFrame FrameOf(const uint8_t* pixels, Size size) {
  return {pixels, size.height, size.width, 0, PixelFormat::kI420};
}

// Images that a program writes to its output as planes of Y, U and V. A thread reads them as they come, so that the
// newest is available and the program never waits.
class PipedCamera : public Camera {
 public:
  // Without a size the output says it itself, as YUV4MPEG2.
  PipedCamera(std::string name, std::vector<std::string> command, Size size)
      : Camera(std::move(name)), size_(size), announced_(size.width == 0), child_(std::move(command)) {
    reader_ = std::thread([this] { ReadAll(); });
  }
  ~PipedCamera() override {
    child_.Stop();
    reader_.join();
  }

  std::optional<Picture> Next() override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + (begun_ ? kNext : kFirst);
    while (!fresh_ && !ended_) {
      if (Interrupted()) return std::nullopt;
      if (std::chrono::steady_clock::now() > deadline) throw GivesNothing();
      changed_.wait_for(lock, kGlance);
    }
    if (Interrupted()) return std::nullopt;
    if (!fresh_) throw Stopped();
    fresh_ = false;
    begun_ = true;
    shown_.swap(newest_);
    const Size size = size_;
    lock.unlock();
    return Picture{FromFrame(FrameOf(shown_.data(), size)), ""};
  }

 private:
  // Needs the lock. What the program said last is why.
  Failure Stopped() const {
    const std::string what = begun_ ? "stopped giving images" : "gives no image";
    const std::string said = reason_.empty() ? child_.Messages() : reason_;
    return Fault(what, said.empty() ? "its program ended" : said);
  }

  void ReadAll() {
    std::string reason;
    try {
      const Size size = announced_ ? ReadHeader() : size_;
      std::vector<uint8_t> data(FrameBytes(FrameOf(nullptr, size)));
      while ((!announced_ || Line().substr(0, 5) == "FRAME") && child_.Fill(data.data(), data.size())) {
        const std::lock_guard<std::mutex> lock(mutex_);
        size_ = size;
        newest_.resize(data.size());
        newest_.swap(data);
        fresh_ = true;
        changed_.notify_one();
      }
    } catch (const std::exception& error) {
      reason = error.what();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    reason_ = reason;
    ended_ = true;
    changed_.notify_one();
  }

  // The line with which YUV4MPEG2 begins (mjpegtools, yuv4mpeg(5)): words that begin with the letter of what they say.
  Size ReadHeader() {
    const std::string line = Line();
    if (line.empty()) throw Failure(Code::kInput, child_.Messages());
    if (line.substr(0, 10) != "YUV4MPEG2 ") throw Failure(Code::kInput, "ffmpeg gives no YUV4MPEG2");
    Size size{};
    for (size_t at = line.find(' '); at != std::string::npos; at = line.find(' ', at + 1)) {
      const char* word = line.c_str() + at + 1;
      if (*word == 'W') size.width = std::atoi(word + 1);
      if (*word == 'H') size.height = std::atoi(word + 1);
      if (*word == 'C' && std::strncmp(word, "C420", 4) != 0) {
        throw Failure(Code::kInput, "ffmpeg gives other colours than were asked for");
      }
    }
    if (size.width <= 0 || size.height <= 0 || size.width > kMaximumPixels / size.height) {
      throw Failure(Code::kInput, "its images are of an impossible size");
    }
    return size;
  }

  // A line without its newline; empty at the end, or where none comes.
  std::string Line() {
    std::string line;
    return child_.Line(&line, 512) ? line : "";
  }

  Size size_;
  const bool announced_;
  Child child_;
  std::thread reader_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint8_t> newest_;
  bool fresh_ = false;
  bool ended_ = false;
  std::string reason_;

  // Of the caller alone.
  std::vector<uint8_t> shown_;
  bool begun_ = false;
};

// The program that reads a Raspberry Pi's camera, under its name of today or that of before 2024.
std::string RaspberryProgram() {
  const std::string today = FindProgram("rpicam-vid");
  return today.empty() ? FindProgram("libcamera-vid") : today;
}

}  // namespace

bool HasRaspberryCamera() { return !RaspberryProgram().empty(); }

std::unique_ptr<Camera> OpenRaspberryCamera(int number, const CameraWish& wish) {
  const std::string program = RaspberryProgram();
  if (program.empty()) {
    throw Failure(Code::kInput, "there is no rpicam-vid, which reads the Raspberry Pi's camera",
                  "sudo apt install rpicam-apps-lite");
  }
  constexpr int kAlignment = 64;  // of rows, which the program gives as they lie in memory
  if (wish.width % kAlignment != 0 || wish.height % 2 != 0) {
    throw Failure(Code::kInput,
                  "rpicam-vid pads images of " + std::to_string(wish.width) + "x" + std::to_string(wish.height),
                  "ask for a --size whose width is a multiple of 64 and whose height is even");
  }
  const std::string index = std::to_string(number);
  return std::make_unique<PipedCamera>(
      "rpicam:" + index,
      std::vector<std::string>{program, "--camera", index, "--timeout", "0", "--nopreview", "--verbose", "0", "--flush",
                               "--codec", "yuv420", "--width", std::to_string(wish.width), "--height",
                               std::to_string(wish.height), "--output", "-"},
      Size{wish.height, wish.width});
}

std::unique_ptr<Camera> OpenStream(const std::string& address) {
  const std::string program = FindProgram("ffmpeg");
  if (program.empty()) {
    throw Failure(Code::kInput, "there is no ffmpeg, which reads streams from the network", "sudo apt install ffmpeg");
  }
  // Images of odd sides have no whole colour differences; one row or column less does.
  const char* protocols = "rtsp,rtp,udp,tcp,tls,http,https,crypto,httpproxy";
  const char* even = "crop=trunc(iw/2)*2:trunc(ih/2)*2";
  return std::make_unique<PipedCamera>(
      address,
      std::vector<std::string>{
          program,   "-nostdin",     "-hide_banner", "-loglevel", "error", "-fflags", "nobuffer", "-protocol_whitelist",
          protocols, "-i",           address,        "-an",       "-vf",   even,      "-pix_fmt", "yuv420p",
          "-f",      "yuv4mpegpipe", "-strict",      "-1",        "pipe:1"},
      Size{});
}

}  // namespace agent
