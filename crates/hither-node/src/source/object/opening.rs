//! Opens sources of objects: what a URL, the environment and the options say of them.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, RetryConfig};
use percent_encoding::percent_decode;
use url::{Host, Position, Url};

use super::super::OpenError;
use super::super::counters::SourceCounters;
use super::super::name::{public_name, without_secrets};
use super::super::opened::Opened;
use super::super::settings::SourceSettings;
use super::conditions::Conditions;
use super::probe::{bucket_store, open_bucket, open_server, web_store};
use super::profile;
use super::store::Store;
use super::transport::Transport;

/// Where each kind of bucket takes credentials from, for who has none.
const CREDENTIALS_S3: &str = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                              AWS_PROFILE, or the option skip_signature=true for a public bucket";
const CREDENTIALS_GOOGLE: &str = "no credentials: set GOOGLE_SERVICE_ACCOUNT to the path of a \
                                  key, or the option skip_signature=true for a public bucket";
const CREDENTIALS_AZURE: &str = "no credentials: set AZURE_STORAGE_ACCOUNT_NAME and \
                                 AZURE_STORAGE_ACCOUNT_KEY, or the option skip_signature=true for \
                                 a public container";

/// The library's own retries are off: its errors come to ours, which know more.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// What all clients are told.
fn client_defaults(settings: &SourceSettings) -> Vec<(ClientConfigKey, String)> {
    let connect = settings.attempt_timeout.as_millis().max(2) / 2;
    vec![
        (ClientConfigKey::ConnectTimeout, format!("{connect}ms")),
        // A limit on a whole answer would end long ones that go well.
        (ClientConfigKey::Timeout, "1day".into()),
        (
            ClientConfigKey::UserAgent,
            concat!("hither/", env!("CARGO_PKG_VERSION")).into(),
        ),
    ]
}

/// TLS needs a provider of its algorithms for the process. Whoever chose one keeps it.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was quicker.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The options as keys of one kind.
fn options<Key: FromStr>(
    settings: &SourceSettings,
    known: &str,
) -> Result<Vec<(Key, String)>, OpenError> {
    let parse = |(key, value): (&String, &String)| match key.to_ascii_lowercase().parse() {
        Ok(parsed) => Ok((parsed, value.clone())),
        Err(_) => Err(OpenError::UnknownOption {
            key: key.clone(),
            known: known.into(),
        }),
    };
    settings.options.iter().map(parse).collect()
}

/// Bucket and prefix of `scheme://bucket/prefix`. The prefix is a key as it is: nothing in it is
/// escaped.
fn bucket_and_prefix(url: &str) -> Result<(&str, Path), OpenError> {
    let not_a_url = |reason: String| OpenError::NotAUrl {
        url: public_name(url),
        reason,
    };
    let (_, rest) = url
        .split_once("://")
        .ok_or_else(|| not_a_url("write SCHEME://BUCKET/PREFIX".into()))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['?', '#', '@', ':']) {
        return Err(not_a_url("what follows :// is no name of a bucket".into()));
    }
    let prefix = Path::parse(prefix.trim_end_matches('/'));
    let prefix = prefix.map_err(|error| not_a_url(error.to_string()))?;
    Ok((bucket, prefix))
}

fn bad_option(url: &str, error: impl Display) -> OpenError {
    OpenError::BadOption {
        url: public_name(url),
        reason: without_secrets(&error.to_string()),
    }
}

/// Opens `s3://bucket/prefix`.
pub(in super::super) async fn open_s3(
    url: &str,
    settings: &SourceSettings,
) -> Result<Opened, OpenError> {
    let (bucket, prefix) = bucket_and_prefix(url)?;
    let counters = Arc::new(SourceCounters::default());
    let mut builder = AmazonS3Builder::from_env();
    for (key, value) in client_defaults(settings) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let known = "endpoint, region, access_key_id, secret_access_key, session_token, \
                 skip_signature, virtual_hosted_style_request, allow_http and others";
    for (key, value) in options(settings, known)? {
        builder = builder.with_config(key, value);
    }
    let is_public = is_true(builder.get_config_value(&AmazonS3ConfigKey::SkipSignature));
    let has_credentials = |builder: &AmazonS3Builder| {
        [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ]
        .iter()
        .any(|key| builder.get_config_value(key).is_some())
    };
    if !is_public && !has_credentials(&builder) {
        for (key, value) in profile::settings() {
            if builder.get_config_value(&key).is_none() {
                builder = builder.with_config(key, value);
            }
        }
    }
    let no_credentials = (!is_public && !has_credentials(&builder)).then_some(CREDENTIALS_S3);
    let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    let allows_http = is_true(builder.get_config_value(&allow_http));
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let endpoint = endpoint.unwrap_or_default();
    if endpoint.starts_with("http://") && !allows_http {
        if !is_loopback(&endpoint) {
            let reason = "the endpoint is not encrypted: allow it with the option allow_http=true";
            return Err(bad_option(url, reason));
        }
        builder = builder.with_config(allow_http, "true");
    }
    install_crypto();
    let transport = Transport::new(&counters);
    let store = s3_store(
        builder.with_bucket_name(bucket),
        &transport,
        prefix,
        settings,
        counters,
    );
    let store = store.map_err(|error| bad_option(url, error))?;
    open_bucket(url, bucket, no_credentials, store).await
}

/// A client of a bucket of S3.
pub(super) fn s3_store(
    builder: AmazonS3Builder,
    transport: &Transport,
    prefix: Path,
    settings: &SourceSettings,
    counters: Arc<SourceCounters>,
) -> object_store::Result<Store> {
    // One object is removed at a time. DeleteObjects, which not every store has, takes no condition
    // and costs as much.
    let builder = builder
        .with_retry(no_retries())
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_http_connector(transport.clone());
    let client = builder.clone().build()?;
    let conditions = Conditions::s3(builder, transport.again(), &client);
    Ok(bucket_store(client, prefix, settings, counters, conditions))
}

/// Opens `gs://bucket/prefix`.
pub(in super::super) async fn open_google(
    url: &str,
    settings: &SourceSettings,
) -> Result<Opened, OpenError> {
    let (bucket, prefix) = bucket_and_prefix(url)?;
    let counters = Arc::new(SourceCounters::default());
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (key, value) in client_defaults(settings) {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    let known = "service_account, service_account_key, application_credentials, skip_signature, \
                 base_url, allow_http and others";
    for (key, value) in options(settings, known)? {
        builder = builder.with_config(key, value);
    }
    let given = |key| builder.get_config_value(&key).is_some();
    let is_public = is_true(builder.get_config_value(&GoogleConfigKey::SkipSignature));
    let has_credentials = [
        GoogleConfigKey::ServiceAccount,
        GoogleConfigKey::ServiceAccountKey,
        GoogleConfigKey::ApplicationCredentials,
    ]
    .map(given)
    .contains(&true);
    install_crypto();
    let client = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_http_connector(Transport::new(&counters))
        .build()
        .map_err(|error| bad_option(url, error))?;
    let conditions = Conditions::by_generation();
    let store = bucket_store(client, prefix, settings, counters, conditions);
    let no_credentials = (!has_credentials && !is_public).then_some(CREDENTIALS_GOOGLE);
    open_bucket(url, bucket, no_credentials, store).await
}

/// Opens `az://container/prefix`.
pub(in super::super) async fn open_azure(
    url: &str,
    settings: &SourceSettings,
) -> Result<Opened, OpenError> {
    let (container, prefix) = bucket_and_prefix(url)?;
    let counters = Arc::new(SourceCounters::default());
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in client_defaults(settings) {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    let known = "account_name, account_key, sas_token, client_id, client_secret, tenant_id, \
                 skip_signature, endpoint, use_emulator, allow_http and others";
    for (key, value) in options(settings, known)? {
        builder = builder.with_config(key, value);
    }
    let given = |key| builder.get_config_value(&key).is_some();
    let has_account = given(AzureConfigKey::AccountName) || given(AzureConfigKey::UseEmulator);
    let is_public = is_true(builder.get_config_value(&AzureConfigKey::SkipSignature));
    let has_credentials = [
        AzureConfigKey::AccessKey,
        AzureConfigKey::SasKey,
        AzureConfigKey::ClientSecret,
        AzureConfigKey::FederatedTokenFile,
        AzureConfigKey::UseEmulator,
    ]
    .map(given)
    .contains(&true);
    if !has_account {
        return Err(OpenError::Credentials {
            url: public_name(url),
            reason: CREDENTIALS_AZURE.into(),
        });
    }
    install_crypto();
    let client = builder
        .with_container_name(container)
        .with_retry(no_retries())
        .with_http_connector(Transport::new(&counters))
        .build()
        .map_err(|error| bad_option(url, error))?;
    let conditions = Conditions::by_etag();
    let store = bucket_store(client, prefix, settings, counters, conditions);
    let no_credentials = (!has_credentials && !is_public).then_some(CREDENTIALS_AZURE);
    open_bucket(url, container, no_credentials, store).await
}

/// Opens `http://host/path` and `https://host/path`, in which `%XX` stands for a byte.
pub(in super::super) async fn open_http(
    url: &str,
    settings: &SourceSettings,
) -> Result<Opened, OpenError> {
    let not_a_url = |reason: String| OpenError::NotAUrl {
        url: public_name(url),
        reason,
    };
    let mut parsed = Url::parse(url).map_err(|error| not_a_url(error.to_string()))?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(not_a_url("write `?` as %3F and `#` as %23".into()));
    }
    let prefix = Path::from_url_path(parsed.path().trim_end_matches('/'));
    let prefix = prefix.map_err(|error| not_a_url(error.to_string()))?;
    let counters = Arc::new(SourceCounters::default());
    let mut client = ClientOptions::new().with_allow_http(parsed.scheme() == "http");
    if let Some(credentials) = take_credentials(&mut parsed) {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, credentials)]);
        client = client.with_default_headers(headers);
    }
    for (key, value) in client_defaults(settings) {
        client = client.with_config(key, value);
    }
    let known = "user_agent, proxy_url, allow_invalid_certificates and others";
    for (key, value) in options(settings, known)? {
        client = client.with_config(key, value);
    }
    install_crypto();
    let client = HttpBuilder::new()
        .with_url(&parsed[..Position::BeforePath])
        .with_client_options(client)
        .with_retry(no_retries())
        .with_http_connector(Transport::new(&counters))
        .build()
        .map_err(|error| bad_option(url, error))?;
    let store = web_store(Arc::new(client), prefix, settings, counters);
    open_server(url, store).await
}

/// Takes user and password out of a URL, as the header that says them.
fn take_credentials(url: &mut Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_decode(text.as_bytes()).collect::<Vec<u8>>();
    let (user, password) = (
        decoded(url.username()),
        decoded(url.password().unwrap_or("")),
    );
    // Fails only for URLs that have no host.
    let _ = (url.set_username(""), url.set_password(None));
    let both = BASE64_STANDARD.encode([&user[..], b":", &password].concat());
    let mut value = HeaderValue::from_str(&format!("Basic {both}")).expect("it is ASCII");
    value.set_sensitive(true);
    Some(value)
}

/// Whether a setting is on, as the client library reads it.
fn is_true(value: Option<String>) -> bool {
    let value = value.unwrap_or_default().to_ascii_lowercase();
    matches!(&value[..], "1" | "true" | "on" | "yes" | "y")
}

/// Whether the endpoint is this machine, which nothing leaves.
fn is_loopback(endpoint: &str) -> bool {
    let Ok(url) = Url::parse(endpoint) else {
        return false;
    };
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
