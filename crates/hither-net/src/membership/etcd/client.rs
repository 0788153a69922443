//! Requests to etcd through its JSON gateway, which needs no gRPC in the build.
//!
//! Several endpoints are tried in turn, beginning with the one that answered last. An endpoint that
//! answers that it has no leader is as good as one that does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::AUTHORIZATION;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::error::{CallError, EtcdError};
use crate::tls::ServiceFiles;

/// gRPC's codes for calls that another endpoint, or the same one later, may answer.
const DEADLINE_EXCEEDED: i64 = 4;
const UNAVAILABLE: i64 = 14;
/// gRPC's code for a token that is not, or no longer, valid.
const UNAUTHENTICATED: i64 = 16;

pub(super) struct Client {
    http: reqwest::Client,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(
        endpoints: &[String],
        tls: Option<&ServiceFiles>,
        user: Option<(String, String)>,
        timeout: Duration,
    ) -> Result<Client, EtcdError> {
        if endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        for endpoint in endpoints {
            let bad = |what| EtcdError::Endpoint {
                endpoint: endpoint.clone(),
                what,
            };
            let parsed = reqwest::Url::parse(endpoint)
                .map_err(|_| bad("it is not of the form http://HOST:PORT"))?;
            match parsed.scheme() {
                "http" => {}
                "https" if tls.is_some() => {}
                "https" => return Err(bad("the certificate of its authority is needed")),
                _ => return Err(bad("it is not of the form http://HOST:PORT")),
            }
        }
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(timeout)
            .tcp_nodelay(true);
        let config = match tls {
            Some(files) => files.load()?,
            None => ServiceFiles::load_none(),
        };
        http = http.tls_backend_preconfigured(config);
        Ok(Client {
            http: http
                .build()
                .map_err(|error| EtcdError::Client(error.to_string()))?,
            endpoints: endpoints
                .iter()
                .map(|at| at.trim_end_matches('/').to_owned())
                .collect(),
            current: AtomicUsize::new(0),
            user,
            token: Mutex::new(None),
            timeout,
        })
    }

    /// Makes a call and returns its answer.
    pub(super) async fn call(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let response = self.open(path, body, Some(self.timeout)).await?;
        let answer = response.json().await;
        answer.map_err(|error| CallError::Unreachable(with_causes(&error)))
    }

    /// Makes a call whose answer goes on, and returns it once it has begun.
    pub(super) async fn stream(&self, path: &str, body: &Value) -> Result<Response, CallError> {
        let opened = tokio::time::timeout(self.timeout, self.open(path, body, None)).await;
        opened.unwrap_or_else(|_| Err(CallError::Unreachable("no answer in time".to_owned())))
    }

    async fn open(
        &self,
        path: &str,
        body: &Value,
        timeout: Option<Duration>,
    ) -> Result<Response, CallError> {
        self.authenticate_first().await?;
        match self.try_endpoints(path, body, timeout).await {
            Err(CallError::Answer { code, .. })
                if code == UNAUTHENTICATED && self.user.is_some() =>
            {
                *self.token.lock() = None;
                self.authenticate_first().await?;
                self.try_endpoints(path, body, timeout).await
            }
            other => other,
        }
    }

    async fn authenticate_first(&self) -> Result<(), CallError> {
        let Some((name, password)) = &self.user else {
            return Ok(());
        };
        if self.token.lock().is_some() {
            return Ok(());
        }
        let body = json!({ "name": name, "password": password });
        let response = self
            .try_endpoints("/v3/auth/authenticate", &body, Some(self.timeout))
            .await?;
        let answer: Value = response
            .json()
            .await
            .map_err(|error| CallError::Unreachable(with_causes(&error)))?;
        *self.token.lock() = answer["token"].as_str().map(str::to_owned);
        Ok(())
    }

    async fn try_endpoints(
        &self,
        path: &str,
        body: &Value,
        timeout: Option<Duration>,
    ) -> Result<Response, CallError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for step in 0..self.endpoints.len() {
            let at = (first + step) % self.endpoints.len();
            let endpoint = &self.endpoints[at];
            let mut request = self.http.post(format!("{endpoint}{path}")).json(body);
            if let Some(timeout) = timeout {
                request = request.timeout(timeout);
            }
            let token = self.token.lock().clone();
            if let Some(token) = token.filter(|_| !path.starts_with("/v3/auth")) {
                request = request.header(AUTHORIZATION, token);
            }
            match request.send().await {
                Ok(response) if response.status() == StatusCode::OK => {
                    self.current.store(at, Ordering::Relaxed);
                    return Ok(response);
                }
                Ok(response) => match refusal(response).await {
                    CallError::Unreachable(why) => failures.push(format!("{endpoint}: {why}")),
                    answer => return Err(answer),
                },
                Err(error) => failures.push(format!("{endpoint}: {}", with_causes(&error))),
            }
        }
        Err(CallError::Unreachable(failures.join("; ")))
    }
}

/// What an answer with an error's status means.
async fn refusal(response: Response) -> CallError {
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let code = answer["code"].as_i64();
    let message = answer["message"].as_str().or(answer["error"].as_str());
    match (code, message) {
        (Some(code), Some(message)) if code != UNAVAILABLE && code != DEADLINE_EXCEEDED => {
            CallError::Answer {
                code,
                message: message.to_owned(),
            }
        }
        (_, Some(message)) => CallError::Unreachable(message.to_owned()),
        _ => CallError::Unreachable(format!("HTTP status {status}")),
    }
}

/// An error of the client and what caused it, without the address, which the caller adds.
pub(super) fn with_causes(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    // The innermost one says what happened; the others say only where.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
