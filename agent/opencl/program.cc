#include "opencl/program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "sha256.h"

namespace agent::opencl {
namespace {

namespace fs = std::filesystem;

// A kept program: this line, the SHA-256 of its binary, and the binary.
constexpr const char* kHead = "edgedeploy OpenCL program 1\n";
constexpr const char* kFolderVariable = "EDGEDEPLOY_OPENCL_CACHE";

// Most compilers say the cause at the beginning; their whole logs can have megabytes.
constexpr size_t kMostOfLog = 4000;

std::string Hash(const std::string& content) {
  Sha256 hash;
  hash.Update(content.data(), content.size());
  return hash.Finish();
}

fs::path Folder() {
  const auto stated = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value ? value : "");
  };
  if (const fs::path folder = stated(kFolderVariable); !folder.empty()) return folder;
  if (const fs::path caches = stated("XDG_CACHE_HOME"); !caches.empty()) return caches / "edgedeploy" / "opencl";
  if (const fs::path home = stated("HOME"); !home.empty()) return home / ".cache" / "edgedeploy" / "opencl";
  return {};
}

std::string PlatformText(cl_platform_id platform, cl_uint what) {
  char text[256] = "";
  Library().clGetPlatformInfo(platform, what, sizeof text - 1, text, nullptr);
  return text;
}

// The file of a program: its name is a hash of all that the binary depends on.
fs::path FileOf(const Device& device, const std::string& source) {
  const fs::path folder = Folder();
  if (folder.empty()) return {};
  std::string key;
  for (const std::string& part : {device.name(), device.Text(CL_DEVICE_VENDOR), device.Text(CL_DEVICE_VERSION),
                                  device.Text(CL_DRIVER_VERSION), PlatformText(device.platform(), CL_PLATFORM_NAME),
                                  PlatformText(device.platform(), CL_PLATFORM_VERSION), source}) {
    key += std::to_string(part.size()) + ":" + part;
  }
  return folder / (Hash(key) + ".bin");
}

// The binary in a file; nothing if there is none, or if it is not what was written.
std::optional<std::string> ReadKept(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::string head = kHead;
  constexpr size_t kHashSize = 64;
  if (content.compare(0, head.size(), head) != 0 || content.size() < head.size() + kHashSize) return std::nullopt;
  std::string binary = content.substr(head.size() + kHashSize);
  if (content.compare(head.size(), kHashSize, Hash(binary)) != 0) return std::nullopt;
  return binary;
}

// Whole or not at all; that it fails costs the next process a compilation, and nothing else.
void Keep(const fs::path& file, const std::string& binary) {
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  fs::path temporary = file;
  temporary += "." + std::to_string(getpid());
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    stream << kHead << Hash(binary) << binary;
    stream.close();
    if (!stream) failed = std::make_error_code(std::errc::io_error);
  }
  if (!failed) fs::rename(temporary, file, failed);
  if (failed) fs::remove(temporary, failed);
}

std::string LogOf(cl_program program, const Device& device) {
  size_t size = 0;
  Library().clGetProgramBuildInfo(program, device.id(), CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  Library().clGetProgramBuildInfo(program, device.id(), CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  log.resize(log.find_last_not_of(std::string(" \n\0", 3)) + 1);
  if (log.size() > kMostOfLog) log = log.substr(0, kMostOfLog) + "\n[" + std::to_string(log.size()) + " bytes in all]";
  return log.empty() ? "the compiler says nothing" : log;
}

cl_int Build(cl_program program, const Device& device) {
  const cl_device_id id = device.id();
  return Library().clBuildProgram(program, 1, &id, "", nullptr, nullptr);
}

// A program of a binary; nothing if the driver does not take it.
Program FromBinary(Device& device, const std::string& binary) {
  const cl_device_id id = device.id();
  const size_t size = binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int status = CL_SUCCESS;
  cl_int code = CL_SUCCESS;
  Program program(Library().clCreateProgramWithBinary(device.context(), 1, &id, &size, &bytes, &status, &code));
  const bool made = code == CL_SUCCESS && program && status == CL_SUCCESS;
  return made && Build(program.get(), device) == CL_SUCCESS ? std::move(program) : nullptr;
}

Program FromSource(Device& device, const std::string& source) {
  const char* text = source.data();
  const size_t size = source.size();
  cl_int code = CL_SUCCESS;
  Program program(Library().clCreateProgramWithSource(device.context(), 1, &text, &size, &code));
  device.Done(code, "make a program");
  code = Build(program.get(), device);
  if (code == CL_SUCCESS) return program;
  Fail(kBuild,
       "the kernels do not compile for " + device.name() + ": " + Named(code) + "\n" + LogOf(program.get(), device));
}

std::string BinaryOf(cl_program program) {
  size_t size = 0;
  if (Library().clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS)
    return "";
  std::string binary(size, '\0');
  char* bytes = binary.data();
  if (Library().clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, nullptr) != CL_SUCCESS) return "";
  return binary;
}

}  // namespace

Program BuildProgram(Device& device, const std::string& source) {
  device.RequireAlive();
  const fs::path file = FileOf(device, source);
  if (!file.empty()) {
    const std::optional<std::string> binary = ReadKept(file);
    if (Program program = binary ? FromBinary(device, *binary) : nullptr) return program;
  }
  Program program = FromSource(device, source);
  if (!file.empty()) {
    const std::string binary = BinaryOf(program.get());
    if (!binary.empty()) Keep(file, binary);
  }
  return program;
}

}  // namespace agent::opencl
