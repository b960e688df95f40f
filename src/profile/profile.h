// SPDX-License-Identifier: Apache-2.0
// Converts profiles and rows to and from JSON values; reading and writing JSON text is elsewhere.
// Other folders of src include this header and the public headers, none of the folder's others.
// Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "headrace/profile.h"
#include "profile/attributes.h"

namespace headrace {

nlohmann::ordered_json json_of(const Row& row);
nlohmann::ordered_json json_of(const Profile& profile);
// Errors: invalid, with the location of the first error. A profile has no modelled row.
Result<Row> read_row(const nlohmann::ordered_json& document);
Result<Profile> read_profile(const nlohmann::ordered_json& document);

}  // namespace headrace
