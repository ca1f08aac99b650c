#include "arguments.h"

#include <algorithm>
#include <charconv>

#include "failure.h"

namespace agent {

namespace {

bool IsOption(const std::string& word) { return word.rfind("--", 0) == 0; }

}  // namespace

Arguments::Arguments(std::vector<std::string> words, const std::vector<std::string>& options,
                     const std::vector<std::string>& flags, const std::vector<std::string>& optional) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!IsOption(word)) {
      positional_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto is_among = [&name](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const bool may_stand_alone = is_among(optional);
    if (is_among(flags)) {
      if (equals != std::string::npos) throw Failure(Code::kUsage, "option --" + name + " has no value");
      options_.emplace_back(name, "");
    } else if (!may_stand_alone && !is_among(options)) {
      throw Failure(Code::kUsage, "unknown option --" + name);
    } else if (equals != std::string::npos) {
      options_.emplace_back(name, word.substr(equals + 1));
    } else if (may_stand_alone && (i + 1 == words.size() || IsOption(words[i + 1]))) {
      options_.emplace_back(name, "");
    } else if (i + 1 < words.size()) {
      options_.emplace_back(name, words[++i]);
    } else {
      throw Failure(Code::kUsage, "option --" + name + " needs a value");
    }
  }
}

const std::string& Arguments::Only(const std::string& what) const {
  if (positional_.size() != 1) {
    throw Failure(Code::kUsage, "there must be one " + what, std::to_string(positional_.size()) + " were given");
  }
  return positional_.front();
}

void Arguments::None() const {
  if (!positional_.empty()) throw Failure(Code::kUsage, "unknown argument " + positional_.front());
}

bool Arguments::Has(const std::string& name) const { return !All(name).empty(); }

std::string Arguments::Text(const std::string& name, const std::string& otherwise) const {
  const std::vector<std::string> values = All(name);
  return values.empty() ? otherwise : values.back();
}

std::vector<std::string> Arguments::All(const std::string& name) const {
  std::vector<std::string> values;
  for (const auto& [option, value] : options_) {
    if (option == name) values.push_back(value);
  }
  return values;
}

int Arguments::Integer(const std::string& name, int otherwise, int least, int most) const {
  if (!Has(name)) return otherwise;
  const std::string text = Text(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Failure(Code::kUsage, "--" + name + " must be a whole number from " + std::to_string(least) + " to " +
                                    std::to_string(most));
  }
  return value;
}

}  // namespace agent
