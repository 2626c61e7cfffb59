#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/preprocessing.h"
#include "weights/foreign.h"

namespace mnemo::bundle {

/// Image preprocessing of another library's folder, as the text of images.json: from timm's `pretrained_cfg` or Hugging
/// Face's preprocessor_config.json. Empty for a folder of ours. If the preprocessing is not supported, warns and
/// returns nothing.
std::string foreign_preprocessing(const std::string& folder);

/// Preprocessing, names of classes and config.json of another library's folder, as files of a folder of ours.
std::map<std::string, std::string> image_files_of(const std::string& folder);

/// The way back: puts into a config.json of that format how images are read and what classes are called; returns the
/// files that belong beside it. Throws InputError "WHERE: ..." for what the format cannot say.
std::map<std::string, std::string> add_image_facts(base::Node& config, const weights::ForeignFormat& format,
                                                   const std::optional<ImagePreprocessing>& facts,
                                                   const std::vector<std::string>& classes, const std::string& where);
/// Whether a config.json of that format says the same of them already.
bool says_image_facts(const base::Node& config, const weights::ForeignFormat& format,
                      const std::optional<ImagePreprocessing>& facts, const std::vector<std::string>& classes);

}  // namespace mnemo::bundle
