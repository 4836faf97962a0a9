//! Answers that refuse, and work that may wait.

use crate::args::error::CliError;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError, web};
use serde_json::json;

/// What a request cannot have, and why: the page shows the text.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Refused {
    pub status: StatusCode,
    pub why: String,
}

impl Refused {
    /// Of a request that makes no sense.
    pub fn bad(why: impl ToString) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, why: why.to_string() }
    }

    /// Of something that is not there.
    pub fn missing(why: impl ToString) -> Refused {
        Refused { status: StatusCode::NOT_FOUND, why: why.to_string() }
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut answer = HttpResponse::build(self.status);
        // A connection that did not authenticate is not kept.
        if matches!(
            self.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST
        ) {
            answer.force_close();
        }
        answer.json(json!({ "error": self.why }))
    }
}

/// What a command says of its failure, without its name.
impl From<CliError> for Refused {
    fn from(error: CliError) -> Self {
        let lines = error.lines.iter().map(|(_, line)| line.trim());
        Refused { status: StatusCode::BAD_GATEWAY, why: lines.collect::<Vec<_>>().join("\n") }
    }
}

/// Asks the daemon, or reads files, on a thread that may wait.
pub(super) async fn waiting<T, F>(ask: F) -> Result<T, Refused>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Refused> + Send + 'static,
{
    let busy =
        |_| Refused { status: StatusCode::SERVICE_UNAVAILABLE, why: "the server ends".to_owned() };
    web::block(ask).await.map_err(busy)?
}
