//! Error responses, and blocking work.

use crate::args::error::CliError;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError, web};
use serde_json::json;

/// An error response. The page shows its text.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Refused {
    pub status: StatusCode,
    pub why: String,
}

impl Refused {
    /// Returns an error for an invalid request.
    pub fn bad(why: impl ToString) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, why: why.to_string() }
    }

    /// Returns an error for a missing resource.
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
        // Unauthenticated connections are closed.
        if matches!(
            self.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST
        ) {
            answer.force_close();
        }
        answer.json(json!({ "error": self.why }))
    }
}

/// Returns the message of a command without its prefix.
impl From<CliError> for Refused {
    fn from(error: CliError) -> Self {
        let lines = error.lines.iter().map(|(_, line)| line.trim());
        Refused { status: StatusCode::BAD_GATEWAY, why: lines.collect::<Vec<_>>().join("\n") }
    }
}

/// Runs a request to the daemon, or file access, on a thread for blocking work.
pub(super) async fn waiting<T, F>(ask: F) -> Result<T, Refused>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Refused> + Send + 'static,
{
    let busy = |_| Refused {
        status: StatusCode::SERVICE_UNAVAILABLE,
        why: "the server is shutting down".to_owned(),
    };
    web::block(ask).await.map_err(busy)?
}
