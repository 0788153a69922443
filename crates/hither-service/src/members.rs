//! `GET /members`: each member of the cluster, a JSON line each, as it answers.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hither_net::view::MemberId;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use crate::served::Served;
use crate::status::{MemberStatus, NodeBrief};

/// A member, as this node sees it, and what it says of itself.
#[derive(Debug, Deserialize, Serialize)]
pub struct MemberReport {
    /// As this node sees it.
    #[serde(flatten)]
    pub member: MemberStatus,
    /// What it says of itself.
    pub report: Option<NodeBrief>,
    /// Why it says nothing.
    pub error: Option<String>,
}

/// Sends a line for each member. A node that is alone is the only one.
pub(crate) async fn tell(served: Arc<Served>, sender: Sender<String>) {
    let members = match served.status().cluster {
        Some(cluster) => cluster.members,
        None => vec![MemberStatus {
            name: served.name.clone().unwrap_or_default(),
            this_node: true,
            ..MemberStatus::default()
        }],
    };
    let asked = members.into_iter().map(|member| ask(&served, member));
    let mut answers: FuturesUnordered<_> = asked.collect();
    while let Some(report) = answers.next().await {
        // It fails on a map whose keys are no texts.
        let line = serde_json::to_string(&report).expect("a document");
        if sender.send(line).await.is_err() {
            return;
        }
    }
}

async fn ask(served: &Served, member: MemberStatus) -> MemberReport {
    let answer = if member.this_node {
        Ok(served.brief())
    } else {
        match served.node.ask(MemberId::of(&member.name)).await {
            Ok(body) => serde_json::from_slice(&body)
                .map_err(|_| "an answer that is not understood".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let (report, error) = match answer {
        Ok(report) => (Some(report), None),
        Err(error) => (None, Some(error)),
    };
    MemberReport {
        member,
        report,
        error,
    }
}
