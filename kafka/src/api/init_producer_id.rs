//! InitProducerId, key 22, versions 0-5: ids and epochs of idempotent producers.
//!
//! * Without a transactional id: a new id with epoch 0; v3+ a producer that names its id and epoch
//!   gets the next epoch.
//! * An empty transactional id is INVALID_REQUEST, as in Kafka 4.3.1; so is an id without its
//!   epoch, or an epoch without its id.
//! * With one: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients treat as final. Transactions
//!   come later.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;

use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::wire::error_code::{self, Surface};

pub(crate) struct InitProducerId;

impl Handler for InitProducerId {
    type Request = InitProducerIdRequest;
    type Response = InitProducerIdResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: InitProducerIdRequest,
    ) -> InitProducerIdResponse {
        match init(&context, call.version, &request).await {
            Ok((id, epoch)) => InitProducerIdResponse::default()
                .with_producer_id(ProducerId(id))
                .with_producer_epoch(epoch),
            Err(error) => InitProducerIdResponse::default()
                .with_error_code(error.code())
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1),
        }
    }

    fn failed(response: &InitProducerIdResponse) -> bool {
        response.error_code != 0
    }
}

async fn init(
    context: &Context,
    version: i16,
    request: &InitProducerIdRequest,
) -> Result<(i64, i16), ResponseError> {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return Err(ResponseError::InvalidRequest),
        Some(_) => return Err(ResponseError::TransactionalIdAuthorizationFailed),
        None => {}
    }
    let (id, epoch) = (*request.producer_id, request.producer_epoch);
    if version >= 3 && (id == -1) != (epoch == -1) {
        return Err(ResponseError::InvalidRequest);
    }
    let known = (version >= 3 && id >= 0 && epoch >= 0).then_some((id, epoch));
    match context.broker.submit(Command::InitProducer { known }).await {
        Ok(Outcome::Producer { id, epoch }) => Ok((id, epoch)),
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject)),
        Ok(_) => Err(ResponseError::UnknownServerError),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Group)),
    }
}
