//! Credentials and region from the files of the AWS command line: `~/.aws/credentials` and
//! `~/.aws/config`. The client library reads the environment only.

use std::path::PathBuf;

use object_store::aws::AmazonS3ConfigKey;

/// What a profile may hold.
const KEYS: [(&str, AmazonS3ConfigKey); 4] = [
    ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
    ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
    ("aws_session_token", AmazonS3ConfigKey::Token),
    ("region", AmazonS3ConfigKey::Region),
];

/// The settings of the profile that `AWS_PROFILE` names, `default` if none. Files that are not
/// there hold nothing. Where a setting occurs twice, the first one counts.
pub(super) fn settings() -> Vec<(AmazonS3ConfigKey, String)> {
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    let files = [
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        ("AWS_CONFIG_FILE", ".aws/config"),
    ];
    let mut all = Vec::new();
    for (variable, usual) in files {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(usual));
        let Some(file) = named.or_else(home) else {
            continue;
        };
        if let Ok(text) = std::fs::read_to_string(file) {
            all.extend(in_profile(&text, &profile));
        }
    }
    all
}

/// The settings of one profile in the text of a file.
fn in_profile(text: &str, profile: &str) -> Vec<(AmazonS3ConfigKey, String)> {
    let mut found = Vec::new();
    let mut is_ours = false;
    for line in text.lines() {
        let plain = line.trim();
        if let Some(section) = plain.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default().trim();
            let section = section.strip_prefix("profile ").unwrap_or(section);
            is_ours = section.trim() == profile;
            continue;
        }
        // Lines that are indented belong to the setting above them.
        let is_comment = plain.starts_with(['#', ';']) || line.starts_with([' ', '\t']);
        if !is_ours || is_comment {
            continue;
        }
        if let Some((name, value)) = plain.split_once('=') {
            let known = KEYS.iter().find(|(known, _)| *known == name.trim());
            found.extend(known.map(|(_, key)| (*key, value.trim().to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_settings_of_the_profile_are_read() {
        let text = "# aws_access_key_id = comment\naws_access_key_id = before\n\
                    [default]\naws_access_key_id = A\naws_secret_access_key=B=C\n\
                    s3 =\n  region = indented\noutput = json\n\
                    [profile other ]\nregion = there\n[ default ]\n;region = x\nregion=here\n";
        let found = |profile| {
            let found = in_profile(text, profile).into_iter();
            found.map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(found("default"), ["A", "B=C", "here"]);
        assert_eq!(found("other"), ["there"]);
        assert!(found("none").is_empty());
    }
}
